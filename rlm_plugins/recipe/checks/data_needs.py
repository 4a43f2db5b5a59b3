"""What the parts of a stage need against what there is to give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.recipe.paths import Path, spell
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.protocols import needs_equation

_NO_RATIO = "comes from an importance part, and this algorithm has none"
_NO_ENGINE = "comes from the engine that samples, and transformers reports none"


def unsupplied(slot: str, *, has_importance: bool, has_shapers: bool, samples_elsewhere: bool) -> dict[str, str]:
    """The names of the batch that nobody fills for a part in `slot`, and why; everything else is computed.

    Args:
        slot: Where the part stands (a key of ``algorithm:``).
        has_importance: Whether the algorithm has an importance part.
        has_shapers: Whether it has a shaper.
        samples_elsewhere: Whether vLLM or a rollouts part writes the rows, and so reports log-probabilities.
    """
    missing: dict[str, str] = {}
    if not has_importance or slot == "importance":
        missing |= dict.fromkeys(("ratio", "log_ratio"), f"the ratio {_NO_RATIO}")
    if not has_shapers:
        missing["dense_rewards"] = "that is what shapers add token by token, and there are none"
    if not samples_elsewhere:
        missing |= {name: f"{name} {_NO_ENGINE}" for name in ("rollout_logp", "rollout_weight")}
    if slot != "aggregator":
        missing["loss"] = "only an aggregator sees the loss of a token"
    return missing


_REMEDIES = {
    "ratio": "add `importance: token`, or choose a part that needs no ratio",
    "log_ratio": "add `importance: token`, or choose a part that needs no ratio",
    "dense_rewards": "add a shaper that pays tokens or steps",
    "rollout_logp": "set `trainer: {use_vllm: true}`, or choose a rollouts part",
    "rollout_weight": "set `trainer: {use_vllm: true}`, or choose a rollouts part",
}


def check_needs(slots: Mapping[str, Any], where: str, *, samples_elsewhere: bool) -> None:
    """Whether everything the parts of an algorithm cannot do without is there.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        where: Address of the section, for errors.
        samples_elsewhere: As above.

    Raises:
        RecipeError: It names the part, what it needs, and who would supply it.
    """
    there = {"has_importance": slots.get("importance") is not None, "has_shapers": bool(slots.get("shapers"))}
    for slot, bound, address in standing(slots, where):
        missing = unsupplied(slot, **there, samples_elsewhere=samples_elsewhere)
        for name in (name for name in (*bound.part.needs, *bound.part.update_needs) if name in missing):
            problem = f"{bound.part.name} needs {name}; {missing[name]}"
            raise RecipeError(problem, where=address, hint=_REMEDIES.get(name, ""))


def standing(slots: Mapping[str, Any], where: str) -> Iterator[tuple[str, Bound, str]]:
    """Slot, part and address of every part of an algorithm."""
    for slot, chosen in slots.items():
        if isinstance(chosen, list):
            yield from ((slot, bound, f"{where}.{slot}[{i}]") for i, bound in enumerate(chosen))
        elif chosen is not None:
            yield slot, chosen, f"{where}.{slot}"


def check_takes_parts(row: Part, engine: Part, merged: Mapping[str, Any], where: str) -> None:
    """Whether an engine with a loss of its own is given parts of the equation, which it would not look at.

    Args:
        row: Of the recipe; where it chooses parts itself, the engine knows them.
        engine: That of the row.
        merged: Key of ``algorithm:`` → what the row and the recipe say there.
        where: Address of the section, for errors.

    Raises:
        RecipeError: It names the engine and the slot.
    """
    if needs_equation(engine.target) or any(row.target.slots().values()):
        return
    for slot in (slot for slot, said in merged.items() if said and slot != "rollouts"):
        problem = f"the engine '{engine.name}' has a loss of its own, and takes no {slot}"
        raise RecipeError(problem, where=f"{where}.{slot}", hint=f"leave it out, or choose another row than {row.name}")


def check_symbols(slots: Mapping[str, Any], rewards: int, place: Path, registry: Registry) -> None:
    """Whether the three symbols are chosen without which there is no equation, and something to compare.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        rewards: How many there are.
        place: Address of the stage.
        registry: Knows what could be chosen.

    Raises:
        RecipeError: It names the slot and the parts that would fit.
    """
    for slot in ("advantage", "policy_loss", "aggregator"):
        if slots[slot] is None:
            where, allowed = spell((*place, "algorithm", slot)), ", ".join(registry.names(HOOK_OF[slot]))
            raise RecipeError(f"the algorithm has no {slot}", where=where, allowed=allowed)
    if not rewards:
        where, allowed = spell((*place, "rewards")), ", ".join(registry.names("rlm_rewards"))
        raise RecipeError(
            "there are no rewards, and this algorithm learns from nothing else", where=where, allowed=allowed
        )
