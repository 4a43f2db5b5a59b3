"""Whether groups of the size a recipe wants teach anything, and how often they are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.checks.data_needs import standing
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound

LEAST = {
    "advantage": "{0} compares the rows of a group: in groups of {1} it is 0 whatever the rewards are",
    "filters": "{0} keeps no row of a group of {1}, whatever the rewards are",
}
"""Slot → what is wrong with a part that has nothing to say of such small groups."""


def check_groups(slots: Mapping[str, Any], size: int, rewards: Sequence[str], where: str, registry: Registry) -> None:
    """Whether every part that chooses or compares rows has something to say of groups of `size`.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        size: Rows of a group.
        rewards: The labels of the rewards.
        where: Address of the section, for errors.
        registry: Knows what could be chosen instead.

    Raises:
        RecipeError: It names the part, and the least size.
    """
    from rlm_plugins.recipe.checks.group_size_probe import least_group

    for slot, bound, address in standing(slots, where):
        matters = slot in LEAST and (slot != "advantage" or _reads_advantages(slots["policy_loss"]))
        if matters and (least := least_group(bound, size, rewards, slots["rollouts"])):
            instead = _content_with(size, rewards, slots["rollouts"], registry) if slot == "advantage" else ""
            raise RecipeError(
                f"{LEAST[slot].format(bound.part.name, size)}, and nothing would be learned",
                where=address,
                allowed=f"`trainer.num_generations` of {least} or more",
                hint=f"an advantage for groups of {size}: {instead}" if instead else "",
            )


def _reads_advantages(loss: Bound) -> bool:
    return "advantages" in (*loss.part.needs, *loss.part.welcomes)


def _content_with(size: int, rewards: Sequence[str], sources: Sequence[Bound], registry: Registry) -> str:
    """The advantages that have something to say of groups of `size`, as they are by default."""
    from rlm_plugins.recipe.checks.group_size_probe import speaks

    offered = [part for part in registry if part.hook == "rlm_advantages"]
    ready = [part for part in offered if not any(field.is_required() for field in part.knobs.model_fields.values())]
    return ", ".join(part.name for part in ready if speaks(part.bind({}), size, rewards, sources))


def check_refills(filters: Sequence[Bound], where: str) -> None:
    """Whether filters that refill agree on how many generation batches may be drawn.

    Raises:
        RecipeError: Two bounds.
    """
    bounds = [(sieve.part.name, sieve.beside["refill"]) for sieve in filters if sieve.beside.get("refill")]
    if len({bound for _, bound in bounds}) > 1:
        said = " and ".join(f"{name} says `refill: {bound}`" for name, bound in bounds)
        hint = "the same `refill` in each: a batch is drawn anew until all of them keep something, or the bound is met"
        raise RecipeError(f"one bound holds for the whole batch, and {said}", where=where, hint=hint)
