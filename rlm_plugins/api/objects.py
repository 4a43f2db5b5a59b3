"""Python objects as parts: functions, classes, data sets and models get a name that a recipe can use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from rlm_plugins.algorithm import SLOTS, Algorithm
from rlm_plugins.errors import RecipeError
from rlm_plugins.hooks import HOOKS
from rlm_plugins.recipe.checks.part_needs import names_in
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.recipe.sections import MANY
from rlm_plugins.registry import Registry
from rlm_plugins.registry.catalog import IN_MEMORY
from rlm_plugins.registry.loading import Plugin
from rlm_plugins.registry.part import Part


def name_of(target: Any) -> str:
    """Return a name for a function, class or instance.

    >>> name_of(functools.partial(max, 1)), name_of(name_of)
    ('max', 'name_of')
    """
    if isinstance(target, functools.partial):
        return name_of(target.func)
    return str(getattr(target, "__name__", type(target).__name__)).strip("<>")


def add(registry: Registry, key: str, target: Any, name: str = "") -> str:
    """Register an object as a part and return its full name.

    Args:
        registry: It gets the part, and the plugin `python`.
        key: Recipe key of the hook: ``advantage``, ``rewards``, ``model``.
        target: Function or class of the part.
        name: Default: that of the function; a number is added to a name that is in use.

    Raises:
        PluginError: The signature breaks the contract of the hook.
    """
    registry.plugins.setdefault(IN_MEMORY, Plugin(IN_MEMORY, "objects of the running Python process"))
    hook, name = HOOK_OF[key], name or name_of(target)
    used = {part.name for part in registry.parts_of(hook) if part.plugin == IN_MEMORY}
    candidates = chain([name], (f"{name}_{n}" for n in range(2, 10_000)))
    part = Part(hook, next(x for x in candidates if x not in used), IN_MEMORY, target)
    part.check()
    registry.add(part)
    return part.full_name


def is_object(value: Any) -> bool:
    """Return True for a function, a class or an object that can be called."""
    return callable(value)


def named_entry(registry: Registry, key: str, entry: Any) -> Any:
    """Return an entry of a recipe with the object in it replaced by its name.

    Args:
        registry: It gets the part.
        key: Recipe key of the hook.
        entry: A name, an object, or a mapping whose ``name`` is an object.
    """
    if isinstance(entry, Mapping):
        return {**entry, "name": add(registry, key, entry["name"])} if is_object(entry.get("name")) else dict(entry)
    return {"name": add(registry, key, entry)} if is_object(entry) else entry


def named_algorithm(registry: Registry, algorithm: Any, default: Algorithm | None = None) -> dict[str, Any]:
    """Return the section ``algorithm:`` for the argument of that name.

    Args:
        registry: It gets functions and rows.
        algorithm: A name, an :class:`rlm_plugins.algorithm.Algorithm`, or a mapping of slots; None: `default`.
        default: Algorithm of a mapping without a name; None: it must have one.

    Raises:
        RecipeError: It is something else, or names no algorithm.
    """
    if algorithm is None or isinstance(algorithm, Mapping):
        section = dict(algorithm or {})
        section.setdefault("name", default)
    else:
        section = {"name": algorithm}
    if isinstance(section["name"], Algorithm):
        section["name"] = add(registry, "algorithm", section["name"], "algorithm")
    if not isinstance(section["name"], str):
        allowed = "a name, an `rlm_plugins.algorithm.Algorithm`, or a mapping of slots with a `name`"
        raise RecipeError(f"expected an algorithm, got {algorithm!r:.80}", where="algorithm", allowed=allowed)
    for slot in (slot for slot in SLOTS if slot in section):
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
    """Set the reward that filters of a published algorithm name (``accuracy``) to the only reward there is, in place.

    Args:
        registry: The parts.
        section: The section ``algorithm:``; a slot that it has stays as it is.
        labels: Labels of the rewards.
    """
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
