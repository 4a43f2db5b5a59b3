"""The section `rewards`: the parts, and their labels, which are the metrics of a stage."""

from __future__ import annotations

from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.part_lookup import Finder
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Measures
from rlm_plugins.rewards.processes import check_processes
from rlm_plugins.stage_settings import Reward


def rewards_of(finder: Finder, entries: list[dict[str, Any]]) -> tuple[list[Reward], list[dict[str, Any]]]:
    """Return the rewards of a stage, and their section as plain data with every default.

    Raises:
        RecipeError: An unknown name, a wrong knob, or a duplicate label.
    """
    rewards: list[Reward] = []
    sections = []
    for i, spec in enumerate(map(_by_address, entries)):
        bound, knobs = finder.part("rewards", spec, ("rewards", i))
        reward = Reward(
            spec.get("as") or spec["name"],
            bound,
            float(spec.get("weight", 1.0)),
            spec.get("on_error") or "stop",
            spec.get("timeout"),
            spec.get("processes"),
            spec.get("prefetch", True),
        )
        if reward.processes is not None:
            check_processes(bound, finder.address("rewards", i))
        if reward.label in [existing.label for existing in rewards]:
            raise RecipeError(
                f"two rewards have the label '{reward.label}'",
                where=finder.address("rewards", i),
                hint="give one of them another label: `as: …`",
            )
        plain = {"name": knobs.pop("name"), **knobs, "as": reward.label, "weight": reward.weight}
        plain["on_error"] = reward.on_error
        finder.record_origin(plain, ("rewards", i), "default")
        rewards.append(reward)
        sections.append(plain)
    return rewards, sections


def labels_of(finder: Finder, trainer: Bound, rewards: list[Reward]) -> list[str]:
    """Return the metrics of a stage: the labels of its rewards, or the metrics of its trainer.

    Raises:
        RecipeError: The trainer takes no rewards, and the stage has some.
    """
    metrics: list[str] = list(trainer.target.metrics) if isinstance(trainer.target, Measures) else []
    if metrics and rewards:
        problem = f"the trainer '{trainer.part.name}' trains on columns of the data set, and takes no rewards"
        hint = "set `rewards:` in the stages that use them, or `rewards: []` here"
        raise RecipeError(problem, where=finder.address("rewards"), hint=hint)
    return metrics or [reward.label for reward in rewards]


def _by_address(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a reward that is named by the address of a function as the part `trl`, labeled by the function's name."""
    module, colon, function = spec["name"].rpartition(":")
    if not (module and colon):
        return spec
    label = spec.get("as") or function.rpartition(".")[2]
    return {**spec, "name": "trl", "function": spec["name"], "as": label}
