"""Reward functions of TRL as entries of a recipe's section `rewards`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlm_plugins.api.objects import add, name_of, named_entry
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.import_path import call_with_accepted


def reward_entries(registry: Registry, reward_funcs: Any, weights: Sequence[float] | None) -> list[dict[str, Any]]:
    """Return the section ``rewards:`` for the reward functions of TRL.

    Args:
        registry: It gets the functions.
        reward_funcs: A function, a reward model (a name or an instance), a mapping ``{"name": part, knobs…}``, or a
            list of them; None: none.
        weights: One per function; None: 1 each.

    Raises:
        RecipeError: As many weights as functions are expected.
    """
    functions = as_list(reward_funcs)
    if weights is not None and len(weights) != len(functions):
        problem = f"expected {len(functions)} reward weights, one per reward function, got {len(weights)}"
        raise RecipeError(problem, where="args.reward_weights")
    entries: list[dict[str, Any]] = []
    for number, function in enumerate(functions):
        entry = _reward_entry(registry, function)
        if weights is not None and entry.get("weight", weights[number]) != weights[number]:
            problem = f"the weight is {entry['weight']} here and {weights[number]} in `args.reward_weights`"
            raise RecipeError(problem, where=f"reward_funcs[{number}]")
        label = entry.get("as") or entry["name"].rpartition("/")[2]
        entries.append({"weight": 1.0 if weights is None else float(weights[number]), **entry, "as": label})
    return entries


def as_list(reward_funcs: Any) -> list[Any]:
    """Return `reward_funcs` of TRL, one or a list of them or None, as a list."""
    if reward_funcs is None:
        return []
    return reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]


def is_model(function: Any) -> bool:
    """Return True for a reward model, which TRL calls itself: its name, or an instance."""
    import torch

    return isinstance(function, str | torch.nn.Module)


def _reward_entry(registry: Registry, function: Any) -> dict[str, Any]:
    if is_model(function):
        name = function if isinstance(function, str) else function.config._name_or_path
        return {"name": add(registry, "rewards", of_environment, name.rstrip("/").rpartition("/")[2] or "model")}
    if isinstance(function, Mapping):
        return dict(named_entry(registry, "rewards", function))
    return {"name": add(registry, "rewards", _plain_function(function), name_of(function))}


def _plain_function(function: Any) -> Callable[..., Any]:
    """Return a reward function of TRL as a part: its keyword-only parameters are columns too, not knobs."""
    if not callable(function):
        raise RecipeError(f"expected a reward function, got {function!r:.80}", where="reward_funcs")
    parameters = inspect.signature(function).parameters.values()
    if not any(p.kind is p.KEYWORD_ONLY for p in parameters):
        return function  # type: ignore[no-any-return]

    def called_with_columns(**columns: Any) -> Any:
        return call_with_accepted(function, columns)

    async def awaited_with_columns(**columns: Any) -> Any:
        return await call_with_accepted(function, columns)

    return awaited_with_columns if inspect.iscoroutinefunction(function) else called_with_columns


def of_environment(completions: Any) -> Any:
    """Placeholder of a reward that TRL computes itself: that of an environment, or of a reward model."""
