"""Checks of the data that parts require against the data that a stage provides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.recipe.paths import Path, format_path
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.protocols import needs_equation

_NO_RATIO = "comes from an importance part, which this algorithm lacks"
_NO_ENGINE = "comes from the inference engine, and transformers reports none"


def unavailable_data(slot: str, *, has_importance: bool, has_shapers: bool, samples_elsewhere: bool) -> dict[str, str]:
    """Return the fields of the batch that are unavailable to a part in `slot`, each with the reason.

    Args:
        slot: That of the part (a key of ``algorithm:``).
        has_importance: True if the algorithm has an importance part.
        has_shapers: True if it has a shaper.
        samples_elsewhere: True if vLLM, a rollout source or a stale policy generates, whose log-probs are known.
    """
    missing: dict[str, str] = {}
    if not has_importance or slot == "importance":
        missing |= dict.fromkeys(("ratio", "log_ratio"), f"the ratio {_NO_RATIO}")
    if not has_shapers:
        missing["dense_rewards"] = "shapers add it per token, and there are none"
    if not samples_elsewhere:
        missing |= {name: f"{name} {_NO_ENGINE}" for name in ("rollout_logp", "rollout_weight")}
    if slot != "aggregator":
        missing["loss"] = "only an aggregator gets the loss per token"
    return missing


def reports_logprobs(settings: Mapping[str, Any], rollouts: Any) -> bool:
    """Return True if log-probs of the sampling policy are available: from vLLM or a rollout source.

    Args:
        settings: ``trainer:`` of the recipe.
        rollouts: Rollout sources beside the policy.
    """
    return bool(rollouts or settings.get("use_vllm"))


_REMEDIES = {
    "ratio": "add `importance: token`, or choose a part that needs no ratio",
    "log_ratio": "add `importance: token`, or choose a part that needs no ratio",
    "dense_rewards": "add a shaper with a reward per token or step",
    "rollout_logp": "set `trainer: {use_vllm: true}` or, with rlm-async, `{stale: 1}`, or choose a rollouts part",
    "rollout_weight": "set `trainer: {use_vllm: true}`, or choose a rollouts part",
}


def check_needs(slots: Mapping[str, Any], where: str, *, samples_elsewhere: bool) -> None:
    """Check that all data that the parts of an algorithm require are provided.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        where: Address of the section, for errors.
        samples_elsewhere: See :func:`unavailable_data`.

    Raises:
        RecipeError: It names the part, the data, and what would provide it.
    """
    provided = {"has_importance": slots.get("importance") is not None, "has_shapers": bool(slots.get("shapers"))}
    for slot, bound, address in iter_parts(slots, where):
        missing = unavailable_data(slot, **provided, samples_elsewhere=samples_elsewhere)
        for name in (name for name in (*bound.part.required_data, *bound.part.update_required_data) if name in missing):
            problem = f"`{bound.part.name}` requires `{name}`: {missing[name]}"
            raise RecipeError(problem, where=address, hint=_REMEDIES.get(name, ""))


def iter_parts(slots: Mapping[str, Any], where: str) -> Iterator[tuple[str, Bound, str]]:
    """Yield slot, part and address of every part of an algorithm."""
    for slot, choice in slots.items():
        if isinstance(choice, list):
            yield from ((slot, bound, f"{where}.{slot}[{i}]") for i, bound in enumerate(choice))
        elif choice is not None:
            yield slot, choice, f"{where}.{slot}"


def check_unused_slots(algorithm: Part, trainer: Part, merged: Mapping[str, Any], where: str) -> None:
    """Check that a trainer with a loss of its own gets no parts of the equation, which it would ignore.

    Args:
        algorithm: Its algorithm; if it has parts itself, its trainer supports them.
        trainer: Its trainer.
        merged: Key of ``algorithm:`` → the merged choice.
        where: Address of the section, for errors.

    Raises:
        RecipeError: It names the trainer and the slot.
    """
    if needs_equation(trainer.target) or any(algorithm.target.slots().values()):
        return
    for slot in (slot for slot, spec in merged.items() if spec and slot != "rollouts"):
        problem = f"the trainer '{trainer.name}' has a loss of its own, and takes no `{slot}`"
        raise RecipeError(
            problem, where=f"{where}.{slot}", hint=f"leave it out, or choose another algorithm than {algorithm.name}"
        )


def check_symbols(slots: Mapping[str, Any], num_rewards: int, stage_path: Path, registry: Registry) -> None:
    """Check that the equation has its three required symbols, and that there are rewards.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        num_rewards: Number of rewards of the stage.
        stage_path: Address of the stage.
        registry: The parts to suggest.

    Raises:
        RecipeError: It names the slot and the parts for it.
    """
    for slot in ("advantage", "policy_loss", "aggregator"):
        if slots[slot] is None:
            where, allowed = format_path((*stage_path, "algorithm", slot)), ", ".join(registry.names(HOOK_OF[slot]))
            raise RecipeError(f"the algorithm has no {slot}", where=where, allowed=allowed)
    if not num_rewards:
        where, allowed = format_path((*stage_path, "rewards")), ", ".join(registry.names("rlm_rewards"))
        raise RecipeError("this algorithm requires rewards", where=where, allowed=allowed)
