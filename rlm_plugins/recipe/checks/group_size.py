"""Checks of the group size against advantages and filters, and of the bounds of dynamic sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.checks.data_needs import iter_parts
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part

TOO_SMALL = {
    "advantage": "`{0}` compares the completions of a group: in groups of {1} it is 0 whatever the rewards are",
    "filters": "`{0}` keeps no completion of a group of {1}, whatever the rewards are",
}
"""Slot → the problem of a part that gives no signal for such small groups."""


def check_groups(slots: Mapping[str, Any], size: int, rewards: Sequence[str], where: str, registry: Registry) -> None:
    """Check that advantages and filters give a signal for groups of `size`.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        size: Completions per prompt.
        rewards: The labels of the rewards.
        where: Address of the section, for errors.
        registry: The parts to suggest.

    Raises:
        RecipeError: It names the part, and the smallest group size.
    """
    from rlm_plugins.recipe.checks.group_size_probe import min_group_size

    for slot, bound, address in iter_parts(slots, where):
        is_checked = slot in TOO_SMALL and (slot != "advantage" or _reads_advantages(slots["policy_loss"]))
        if is_checked and (minimum := min_group_size(bound, size, rewards, slots["rollouts"])):
            alternatives = _alternatives(size, rewards, slots["rollouts"], registry) if slot == "advantage" else ""
            raise RecipeError(
                f"{TOO_SMALL[slot].format(bound.part.name, size)}, so nothing would be trained",
                where=address,
                allowed=f"`trainer.num_generations` of {minimum} or more",
                hint=f"an advantage for groups of {size}: {alternatives}" if alternatives else "",
            )


def _reads_advantages(loss: Bound) -> bool:
    return "advantages" in loss.part.data


def _alternatives(size: int, rewards: Sequence[str], sources: Sequence[Bound], registry: Registry) -> str:
    """Return the advantages that give a signal for groups of `size`, with their default knobs."""
    from rlm_plugins.recipe.checks.group_size_probe import has_signal

    parts = [part for part in registry.parts_of("rlm_advantages") if not _has_required_knob(part)]
    return ", ".join(part.name for part in parts if has_signal(part.bind({}), size, rewards, sources))


def _has_required_knob(part: Part) -> bool:
    return any(field.is_required() for field in part.knobs.model_fields.values())


def check_refills(filters: Sequence[Bound], where: str) -> None:
    """Check that filters that refill agree on the number of sampling rounds.

    Raises:
        RecipeError: Two bounds.
    """
    bounds = [(part.part.name, part.options["refill"]) for part in filters if part.options.get("refill")]
    if len({bound for _, bound in bounds}) > 1:
        refills = " and ".join(f"`{name}` has `refill: {bound}`" for name, bound in bounds)
        hint = "set the same `refill` in each: sampling ends when all of them keep something, or at the bound"
        raise RecipeError(f"expected one bound for the whole batch, but {refills}", where=where, hint=hint)
