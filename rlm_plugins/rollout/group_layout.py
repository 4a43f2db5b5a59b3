"""Assignment of the completions of a group to the policy and the rollout sources; importable without torch."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import NeedsWholeGroups, columns_of

POLICY = "policy"
"""Label of the policy's completions."""
WHERE = "algorithm.rollouts"


def label(source: Bound) -> str:
    """Return the label of a source: its ``as``, else its name."""
    return str(source.options.get("as") or source.part.name)


def labels(sources: Sequence[Bound], where: str = WHERE) -> list[str]:
    """Return the labels of all completions: the policy's first, then each source's."""
    names = [label(source) for source in sources]
    for number, source in enumerate(sources):
        if names[number] == POLICY != source.part.name:
            problem = f"'{source.part.name}' cannot have the label '{POLICY}', which marks the policy's completions"
            raise RecipeError(problem, where=f"{where}[{number}].as", hint="another label")
    for duplicate in (name for name in names if names.count(name) > 1):
        problem, hint = f"two sources have the label '{duplicate}'", "give one of them another label: `as: …`"
        raise RecipeError(problem, where=where, hint=hint)
    return list(dict.fromkeys([POLICY, *names]))


def assign_sources(sources: Sequence[Bound], generations: int, where: str = WHERE) -> list[int]:
    """Return the source of each completion of a group: 0 for the policy, k for the k-th source.

    Sources with `num_completions` are assigned theirs from the last completion towards the first; the one without
    gets all that are left.
    """
    assignment, free = [0] * generations, generations
    numbered = list(enumerate(sources, 1))
    unlimited = [number for number, source in numbered if not source.options.get("num_completions")]
    if len(unlimited) > 1:
        problem = f"sources {unlimited[0]} and {unlimited[1]} both take all completions that are left"
        raise RecipeError(problem, where=where, hint="give one of them its `num_completions`")
    for number, source in sorted(numbered, key=lambda pair: pair[0] in unlimited):
        count = source.options.get("num_completions") or free
        if not 0 < count <= free:
            required = "all completions that are left" if number in unlimited else f"{count} completions of a group"
            problem = f"source {number} ({source.part.name}) requires {required}, {free} are free"
            hint = f"`trainer.num_generations` is {generations}, the completions of the policy included"
            raise RecipeError(problem, where=where, hint=hint)
        assignment[free - count : free] = [number] * count
        free -= count
    return assignment


def columns_read(sources: Sequence[Bound]) -> list[str]:
    """Return the data-set columns that the sources declare."""
    return [column for source in sources for column in columns_of(source.target)]


def check_whole_groups(sources: Sequence[Bound], generations: int, per_process: int) -> None:
    """Check that no group is split over processes where a source declares ``whole_groups = True``."""
    for source in sources:
        if isinstance(source.target, NeedsWholeGroups) and source.target.whole_groups and per_process % generations:
            raise RecipeError(
                f"'{source.part.name}' requires whole groups on every process, got {per_process} completions "
                f"in groups of {generations}",
                where=WHERE,
                hint="make per_device_train_batch_size × steps_per_generation a multiple of num_generations",
            )
