"""Has every row of a generation batch written: by the policy, and by the rollout sources of the recipe beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.group_layout import POLICY, label, labels, owners
from rlm_plugins.rollout.source_output import OF_TOKENS, asked, guarded


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


class RolloutCollector:
    """Gives every row of a batch to its writer.

    Args:
        sources: Rollout parts in the order of the recipe.
        generations: Rows per group.
        plays: Whether the policy's rows are episodes of a world that answers.

    Raises:
        RecipeError: The sources want more rows than a group has, or two go by one label.
    """

    def __init__(self, sources: Sequence[Bound], generations: int, *, plays: bool = False) -> None:
        self.sources, self._plays = sources, plays
        self.labels = labels(sources)
        self.owners = owners(sources, generations)
        self._places = [self.owners[:row].count(owner) for row, owner in enumerate(self.owners)]

    def share(self, name: str) -> float:
        """The share of the rows of a group that the recipe gives to who goes by `name`, the policy apart."""
        owned = [number for number, source in enumerate(self.sources, 1) if label(source) == name != POLICY]
        return sum(self.owners.count(number) for number in owned) / len(self.owners)

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
                "generate": guarded(source, trainer.generate, vocabulary),
                "prompts": [prompts[i] for i in mine],
                "inputs": [inputs[i] for i in mine],
                "source_index": [self._places[in_group[i]] for i in mine],
            }
            found = _cut(asked(source, given, vocabulary), trainer.max_completion_length)
            _put(rows, inputs, self.labels.index(label(source)), mine, found)
        left = [i for i, ids in enumerate(rows.completion_ids) if not ids]
        _put(rows, inputs, 0, left, self._by_policy(trainer, [prompts[i] for i in left], [inputs[i] for i in left]))
        return rows

    def _by_policy(self, trainer: Any, prompts: list[Any], inputs: list[Any]) -> Mapping[str, list[Any]]:
        if self._plays:
            found: Mapping[str, list[Any]] = trainer.play(prompts, inputs)
            return found
        ids, logprobs = trainer.generate(prompts)
        return {"completion_ids": ids, "logprobs": logprobs or [None] * len(prompts)}


def _given(trainer: Any) -> dict[str, Any]:
    return {
        "tokenizer": trainer.tokenizer,
        "step": trainer.state.global_step,
        "seed": trainer.args.seed,
        "trainer": trainer,
    }


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
