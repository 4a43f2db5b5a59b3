"""Whose rows are whose: how the rollout sources of a recipe share a group with the policy. (Imports no torch.)"""

from __future__ import annotations

from collections.abc import Sequence

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import NeedsWholeGroups, columns_of

POLICY = "policy"
"""What rows go by that the policy wrote."""
WHERE = "algorithm.rollouts"


def label(source: Bound) -> str:
    """What the rows of a source go by."""
    return str(source.beside.get("as") or source.part.name)


def labels(sources: Sequence[Bound], where: str = WHERE) -> list[str]:
    """What rows go by: the policy first, then each source by its ``as``, else its name.

    Raises:
        RecipeError: Two go by one label, or one by that of the policy.
    """
    found = [label(source) for source in sources]
    for number, source in enumerate(sources):
        if found[number] == POLICY != source.part.name:
            problem = f"the rows of '{source.part.name}' cannot go by '{POLICY}': that is who wrote the others"
            raise RecipeError(problem, where=f"{where}[{number}].as", hint="another label")
    for twice in (name for name in found if found.count(name) > 1):
        problem, hint = f"two sources go by '{twice}'", "give one of them another label: `as: …`"
        raise RecipeError(problem, where=where, hint=hint)
    return list(dict.fromkeys([POLICY, *found]))


def owners(sources: Sequence[Bound], generations: int, where: str = WHERE) -> list[int]:
    """Who writes which row of a group: 0 the policy, k the k-th source.

    Sources with `num_completions` take theirs from the last row towards the first; the one without takes all that are
    left.

    Raises:
        RecipeError: They want more rows than a group has, or two want all that are left.
    """
    owned, free = [0] * generations, generations
    numbered = list(enumerate(sources, 1))
    takers = [number for number, source in numbered if not source.beside.get("num_completions")]
    if len(takers) > 1:
        problem = f"sources {takers[0]} and {takers[1]} both take all the rows that are left"
        raise RecipeError(problem, where=where, hint="give one of them its `num_completions`")
    for number, source in sorted(numbered, key=lambda pair: pair[0] in takers):
        rows = source.beside.get("num_completions") or free
        if not 0 < rows <= free:
            wanted = "all the rows that are left" if number in takers else f"{rows} rows of a group"
            problem = f"source {number} ({source.part.name}) wants {wanted}, {free} are free"
            hint = f"`trainer.num_generations` is {generations}: it counts the rows of all sources and the policy"
            raise RecipeError(problem, where=where, hint=hint)
        owned[free - rows : free] = [number] * rows
        free -= rows
    return owned


def columns_read(sources: Sequence[Bound]) -> list[str]:
    """The columns of the data set that the sources say they read."""
    return [column for source in sources for column in columns_of(source.target)]


def check_whole_groups(sources: Sequence[Bound], generations: int, share: int) -> None:
    """Whether the sources that need it find every group whole on one process.

    Args:
        sources: Those that say ``whole_groups = True`` need it.
        generations: Rows of a group.
        share: Rows of a generation batch on one process.

    Raises:
        RecipeError: Groups are cut.
    """
    for source in sources:
        if isinstance(source.target, NeedsWholeGroups) and source.target.whole_groups and share % generations:
            raise RecipeError(
                f"'{source.part.name}' needs whole groups on every process; {share} rows are no whole groups of "
                f"{generations}",
                where=WHERE,
                hint="make per_device_train_batch_size × steps_per_generation a multiple of num_generations",
            )
