"""Who writes the rows of a generation batch: the policy, and the rollout sources of the recipe beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlm_plugins.ask import blamed, place
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.registry.parts import Bound

POLICY = "policy"
"""What rows go by that the policy wrote."""


@dataclass
class Rows:
    """What stands on the rows of one process.

    Args:
        source: Per row, the position of its writer in the labels; 0 is the policy.
        prompt_ids, completion_ids: Per row, token ids.
        logprobs: Per row and token, as the writer reports them; None: it reports none.
        mask: Per row and token, whether it is trained on; None: all are.
        columns: What else sources say of their rows, for the rewards; None on the rows of others.
    """

    source: list[int]
    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[list[float | None] | None]
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

    def __call__(self, prompts: Sequence[Any], inputs: Sequence[Mapping[str, Any]], first: int, trainer: Any) -> Rows:
        """Has every row written.

        Args:
            prompts: One per row of this process, groups repeated.
            inputs: The columns of each row.
            first: Number of this process's first row in the generation batch.
            trainer: An `EquationTrainer`: tokenizes, and writes as the policy.

        Raises:
            PartError: A source failed, or returned something else than its rows.
        """
        written = self._opened(trainer.prompt_ids(prompts))
        wanted = [self.owners[(first + i) % len(self.owners)] for i in range(len(prompts))]
        for number, source in enumerate(self.sources, 1):
            mine = [i for i, owner in enumerate(wanted) if owner == number]
            if mine:
                given = _given(trainer, [prompts[i] for i in mine], [inputs[i] for i in mine])
                self._take(written, self.labels.index(label(source)), mine, _asked(source, given))
        left = [i for i, ids in enumerate(written.completion_ids) if not ids]
        if left:
            ids, logprobs = trainer.write([prompts[i] for i in left])
            self._take(written, 0, left, {"completion_ids": ids, "logprobs": logprobs or [None] * len(left)})
        return written

    def _opened(self, prompt_ids: list[list[int]]) -> Rows:
        n = len(prompt_ids)
        return Rows([0] * n, prompt_ids, [[] for _ in range(n)], [None] * n, [None] * n)

    def _take(self, rows: Rows, number: int, places: Sequence[int], found: Mapping[str, Any]) -> None:
        fields: dict[str, list[Any]] = {"prompt_ids": rows.prompt_ids, "logprobs": rows.logprobs, "mask": rows.mask}
        for k, i in enumerate(places):
            if not found["completion_ids"][k]:
                continue
            rows.source[i], rows.completion_ids[i] = number, list(found["completion_ids"][k])
            for name, values in found.items():
                if name in fields:
                    fields[name][i] = values[k]
                elif name != "completion_ids":
                    rows.columns.setdefault(name, [None] * len(rows.source))[i] = values[k]


def label(source: Bound) -> str:
    """What the rows of a source go by."""
    return str(source.beside.get("as") or source.part.name)


def labels(sources: Sequence[Bound]) -> list[str]:
    """What rows go by: the policy first, then each source by its ``as``, else its name.

    Raises:
        RecipeError: Two go by one label.
    """
    found = [label(source) for source in sources]
    for twice in (name for name in found if found.count(name) > 1):
        problem, hint = f"two sources go by '{twice}'", "give one of them another label: `as: …`"
        raise RecipeError(problem, where="algorithm.rollouts", hint=hint)
    return list(dict.fromkeys([POLICY, *found]))


def owners(sources: Sequence[Bound], generations: int) -> list[int]:
    """Who writes which row of a group: 0 the policy, k the k-th source; sources from the last row towards the first.

    Raises:
        RecipeError: They want more rows than a group has.
    """
    owned, free = [0] * generations, generations
    for number, source in enumerate(sources, 1):
        rows = source.beside.get("rows") or free
        if not 0 < rows <= free:
            problem = (
                f"source {number} ({source.part.name}) wants {rows or 'the remaining'} rows of a group, {free} are free"
            )
            hint = f"`trainer.num_generations` is {generations}: it counts the rows of all sources and the policy"
            raise RecipeError(problem, where="algorithm.rollouts", hint=hint)
        owned[free - rows : free] = [number] * rows
        free -= rows
    return owned


def _given(trainer: Any, prompts: list[Any], inputs: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "prompts": prompts,
        "inputs": inputs,
        "write": lambda *args, **options: trainer.write(*args, **options)[0],
        "tokenizer": trainer._tokenizer,
        "step": trainer.state.global_step,
        "seed": trainer.args.seed,
        "trainer": trainer,
    }


def _asked(source: Bound, given: Mapping[str, Any]) -> Mapping[str, Any]:
    with blamed(source):
        found = source.call({name: given[name] for name in (*source.part.needs, *source.part.welcomes)})
    size = len(given["prompts"])
    sizes = {name: len(values) for name, values in found.items()} if isinstance(found, Mapping) else {}
    if "completion_ids" not in sizes or set(sizes.values()) != {size}:
        said = ", ".join(f"{n} {name}" for name, n in sizes.items()) or type(found).__name__
        needed = f"completion_ids (and whatever else): a list of {size} rows each"
        raise PartError(f"returned {said}", where=place(source), allowed=needed)
    return {("mask" if name == "env_mask" else name): values for name, values in found.items()}
