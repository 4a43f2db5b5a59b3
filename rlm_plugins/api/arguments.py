"""Arguments of the Python API as parts and stages: Python objects, and configs and reward functions of TRL."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.lazy import torch
from rlm_plugins.recipe.checks.part_needs import names_in
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.recipe.sections import MANY
from rlm_plugins.registry import Registry
from rlm_plugins.registry.loading import Plugin, call_with_accepted
from rlm_plugins.registry.part import Part
from rlm_plugins.registry.registry import IN_MEMORY
from rlm_plugins.specs import SLOTS, Algorithm

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset
    from transformers import PreTrainedModel

    Data: TypeAlias = Dataset | IterableDataset | Sequence[Mapping[str, Any]]
    RewardLike: TypeAlias = str | Mapping[str, Any] | PreTrainedModel | Callable[..., Any]
    """A reward function or model, the name of a reward part, or a mapping with its knobs."""
AlgorithmLike = str | Mapping[str, Any] | Algorithm
"""The name of an algorithm, an algorithm, or a mapping of slots, in which functions are parts."""


def name_of(target: Any) -> str:
    """Return a name for a function, class or instance.

    >>> name_of(functools.partial(max, 1)), name_of(name_of)
    ('max', 'name_of')
    """
    if isinstance(target, functools.partial):
        return name_of(target.func)
    return str(getattr(target, "__name__", type(target).__name__)).strip("<>")


def add(registry: Registry, key: str, target: Any, name: str = "") -> str:
    """Register an object as a part and return its full name."""
    registry.plugins.setdefault(IN_MEMORY, Plugin(IN_MEMORY, "objects of the running Python process"))
    hook, name = HOOK_OF[key], name or name_of(target)
    used = {part.name for part in registry.parts_of(hook) if part.plugin == IN_MEMORY}
    candidates = chain([name], (f"{name}_{n}" for n in range(2, 10_000)))
    part = Part(hook, next(x for x in candidates if x not in used), IN_MEMORY, target)
    part.check()
    registry.add(part)
    return part.full_name


def named_entry(registry: Registry, key: str, entry: Any) -> Any:
    """Return an entry of a recipe with the object in it replaced by its name."""
    if isinstance(entry, Mapping):
        if "name" not in entry and (functions := [knob for knob, value in entry.items() if callable(value)]):
            hint = f"`{{'name': {name_of(entry[functions[0]])}, …}}`: a function is the name of its part"
            raise RecipeError(f"unknown key '{functions[0]}'", where=key, hint=hint)
        return {**entry, "name": add(registry, key, entry["name"])} if callable(entry.get("name")) else dict(entry)
    return {"name": add(registry, key, entry)} if callable(entry) else entry


def named_algorithm(registry: Registry, algorithm: Any, default: Algorithm | None = None) -> dict[str, Any]:
    """Return the section ``algorithm:`` for the argument of that name."""
    if algorithm is None or isinstance(algorithm, Mapping):
        section = dict(algorithm or {})
        section.setdefault("name", default)
    else:
        section = {"name": algorithm}
    if isinstance(section["name"], Algorithm):
        section["name"] = add(registry, "algorithm", section["name"], "algorithm")
    if not isinstance(section["name"], str):
        allowed = "a name, an `rlm_plugins.specs.Algorithm`, or a mapping of slots with a `name`"
        raise RecipeError(f"expected an algorithm, got {algorithm!r:.80}", where="algorithm", allowed=allowed)
    for slot in (slot for slot in section if slot != "name"):
        if slot not in SLOTS:
            hint = nearest(slot, SLOTS)
            raise RecipeError(f"unknown slot '{slot}'", where="algorithm", allowed=", ".join(SLOTS), hint=hint)
        section[slot] = _named_slot(registry, slot, section[slot])
    return section


def _named_slot(registry: Registry, slot: str, choice: Any) -> Any:
    if slot not in MANY:
        return named_entry(registry, slot, choice)
    if isinstance(choice, Mapping) and "name" not in choice:
        return dict(choice)  # changes of the algorithm's list, by position or name
    entries = choice if isinstance(choice, list | tuple) else [choice]
    return [named_entry(registry, slot, entry) for entry in entries]


def name_only_reward(registry: Registry, section: dict[str, Any], labels: Sequence[str]) -> None:
    """Set the reward that filters of a published algorithm name (``accuracy``) to the only one, in place."""
    algorithm = registry.find("rlm_algorithms", section["name"], where="algorithm").target
    for slot in (slot for slot in ("shapers", "filters") if slot not in section and len(labels) == 1):
        changes: dict[str, Any] = {}
        for number, spec in enumerate(getattr(algorithm, slot)):
            hook = HOOK_OF[slot]
            knobs = {"name": spec} if isinstance(spec, str) else dict(spec)
            part = registry.find(hook, knobs.pop("name"))
            bound = part.bind({knob: value for knob, value in knobs.items() if knob not in HOOKS[hook].options})
            unknown = [suffix[1:] for suffix, name in names_in(bound, "reward") if name not in labels]
            changes |= {str(number): dict.fromkeys(unknown, labels[0])} if unknown else {}
        section |= {slot: changes} if changes else {}


def constant(value: Any) -> Callable[[], Any]:
    """Return a part without knobs that returns a value: a data set or a model that exists already."""

    def part() -> Any:
        return value

    part.__doc__ = f"Return the {type(value).__name__} that was passed from Python."
    return part


def reward_entries(registry: Registry, reward_funcs: Any, weights: Sequence[float] | None) -> list[dict[str, Any]]:
    """Return the section ``rewards:`` for the reward functions of TRL."""
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
    return isinstance(function, str | torch.nn.Module)


def _reward_entry(registry: Registry, function: Any) -> dict[str, Any]:
    if is_model(function):
        name = function if isinstance(function, str) else function.config._name_or_path
        return {"name": add(registry, "rewards", of_environment, name.rstrip("/").rpartition("/")[2] or "model")}
    if isinstance(function, Mapping):
        return dict(named_entry(registry, "rewards", function))
    return {"name": add(registry, "rewards", _plain_function(function), name_of(function)), "messages": True}


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
