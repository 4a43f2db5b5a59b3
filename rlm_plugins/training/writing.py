"""Has every row of a generation batch written: by the policy, and by the rollout sources of the recipe beside it."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlm_plugins.ask import blamed, place
from rlm_plugins.errors import PartError
from rlm_plugins.registry.parts import Bound
from rlm_plugins.training.sharing import label, labels, owners

OF_TOKENS = ("logprobs", "mask")
"""What a source may say of each token of a row."""


@dataclass
class Rows:
    """What stands on the rows of one process.

    Args:
        source: Per row, the position of its writer in the labels; 0 is the policy.
        prompt_ids, completion_ids: Per row, token ids.
        logprobs: Per row and token, as the writer reports them; None: it reports none.
        mask: Per row and token, whether it is trained on; None: all are.
        columns: What else sources say of their rows, for the rewards; on other rows what the data set has there.
    """

    source: list[int]
    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[Sequence[float | None] | None]
    mask: list[Sequence[bool] | None]
    columns: dict[str, list[Any]] = field(default_factory=dict)


class Writers:
    """Gives every row of a batch to its writer.

    Args:
        sources: Rollout parts in the order of the recipe.
        generations: Rows per group.

    Raises:
        RecipeError: The sources want more rows than a group has, or two go by one label.
    """

    def __init__(self, sources: Sequence[Bound], generations: int) -> None:
        self.sources = sources
        self.labels = labels(sources)
        self.owners = owners(sources, generations)
        self._places = [self.owners[:row].count(owner) for row, owner in enumerate(self.owners)]

    def __call__(self, prompts: Sequence[Any], inputs: Sequence[Mapping[str, Any]], first: int, trainer: Any) -> Rows:
        """Has every row written.

        Every source is asked on every process, also where it has no rows: what it does with all processes together
        (writing with a sharded policy, setting a temperature) then happens on all.

        Args:
            prompts: One per row of this process, groups repeated.
            inputs: The columns of each row.
            first: Number of this process's first row in the generation batch.
            trainer: An `EquationTrainer`: tokenizes, and writes as the policy.

        Raises:
            PartError: A source failed, or returned something else than its rows.
        """
        n = len(prompts)
        rows = Rows([0] * n, trainer.prompt_ids(prompts), [[] for _ in range(n)], [None] * n, [None] * n)
        vocabulary = trainer.model.get_input_embeddings().num_embeddings if self.sources else None
        in_group = [(first + i) % len(self.owners) for i in range(n)]
        for number, source in enumerate(self.sources, 1):
            mine = [i for i in range(n) if self.owners[in_group[i]] == number]
            given = {
                **_given(trainer),
                "prompts": [prompts[i] for i in mine],
                "inputs": [inputs[i] for i in mine],
                "place": [self._places[in_group[i]] for i in mine],
            }
            found = _cut(asked(source, given, vocabulary), trainer.max_completion_length)
            _put(rows, inputs, self.labels.index(label(source)), mine, found)
        left = [i for i, ids in enumerate(rows.completion_ids) if not ids]
        ids, logprobs = trainer.write([prompts[i] for i in left])
        _put(rows, inputs, 0, left, {"completion_ids": ids, "logprobs": logprobs or [None] * len(left)})
        return rows


def _given(trainer: Any) -> dict[str, Any]:
    return {
        "write": lambda *args, **options: trainer.write(*args, **options)[0],
        "tokenizer": trainer.tokenizer,
        "step": trainer.state.global_step,
        "seed": trainer.args.seed,
        "trainer": trainer,
    }


def asked(source: Bound, given: Mapping[str, Any], vocabulary: int | None = None) -> dict[str, list[Any]]:
    """What a source answers, once it has as many entries as it was given rows, and as many marks as tokens.

    Args:
        source: The part.
        given: What it may name: :data:`rlm_plugins.hookspecs.WRITING`.
        vocabulary: How many tokens the model can read; None: nobody knows.

    Raises:
        PartError: It failed, or answered something else.
    """
    with blamed(source):
        named = (*source.part.needs, *source.part.welcomes)
        found = source.call({name: given[name] for name in named}, given["step"])
    size = len(given["prompts"])
    listed = found if isinstance(found, Mapping) else {}
    sizes = {name: len(values) for name, values in listed.items() if hasattr(values, "__len__")}
    if "completion_ids" not in sizes or set(sizes.values()) != {size} or len(sizes) < len(listed):
        said = ", ".join(f"{n} {name}" for name, n in sizes.items()) or type(found).__name__
        needed = f"completion_ids (and whatever else): a list of {size} rows each"
        raise PartError(f"returned {said}", where=place(source), allowed=needed)
    rows = {("mask" if name == "env_mask" else name): list(values) for name, values in listed.items()}
    rows["completion_ids"] = [_token_ids(source, row, vocabulary) for row in rows["completion_ids"]]
    for name in (name for name in OF_TOKENS if name in rows):
        for ids, marks in zip(rows["completion_ids"], rows[name], strict=True):
            if ids and marks is not None and len(marks) != len(ids):
                problem = f"returned a {name} of {len(marks)} entries for a row of {len(ids)} tokens"
                raise PartError(problem, where=place(source), allowed="one entry per token, or None for the row")
    return rows


def _token_ids(source: Bound, row: Any, vocabulary: int | None) -> list[int] | None:
    """A row as the tokens of the model; None: it is left open."""
    allowed = "None, or a list of token ids" + (f" from 0 to {vocabulary - 1}" if vocabulary else "")
    try:
        ids = None if row is None else [operator.index(token) for token in row]
    except TypeError:
        raise PartError(f"returned the row {row!r:.80}", where=place(source), allowed=allowed) from None
    for token in ids or ():
        if token < 0 or (vocabulary and token >= vocabulary):
            raise PartError(f"returned a row with the token id {token}", where=place(source), allowed=allowed)
    return ids


def _cut(found: dict[str, list[Any]], longest: int) -> dict[str, list[Any]]:
    """Rows of at most `longest` tokens. One that was cut has no end token, and so counts as truncated."""
    per_token = ("completion_ids", *OF_TOKENS)
    return {name: [x and x[:longest] for x in xs] if name in per_token else xs for name, xs in found.items()}


def _put(
    rows: Rows, inputs: Sequence[Mapping[str, Any]], writer: int, places: Sequence[int], found: Mapping[str, Any]
) -> None:
    """Writes what was found into the rows at `places`, but for those that are left open."""
    written: dict[str, list[Any]] = {"prompt_ids": rows.prompt_ids, "logprobs": rows.logprobs, "mask": rows.mask}
    for k, i in enumerate(places):
        if not found["completion_ids"][k]:
            continue
        rows.source[i], rows.completion_ids[i] = writer, list(found["completion_ids"][k])
        for name in found.keys() - {"completion_ids"}:
            column = written[name] if name in written else _column(rows, inputs, name)
            column[i] = found[name][k]


def _column(rows: Rows, inputs: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    return rows.columns.setdefault(name, [row.get(name) for row in inputs])
