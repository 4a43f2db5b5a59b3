"""Merge of an algorithm with the overrides of a recipe, slot by slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins.algorithm import Spec
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.list_entries import position
from rlm_plugins.recipe.part_lookup import Finder
from rlm_plugins.recipe.sections import MANY
from rlm_plugins.registry.part import Part

PartSpec = dict[str, Any]
"""``{name: …, knobs…}``"""


def merge(algorithm: Part, overrides: Mapping[str, Any], finder: Finder) -> dict[str, Any]:
    """Return the parts of every slot, with the overrides applied.

    Args:
        algorithm: A part of `rlm_algorithms`.
        overrides: Slot → override. Null empties it. Another ``name`` replaces the part and drops its knobs; knobs alone
            (or with the same name) override those of the algorithm's part. A list replaces the algorithm's list; a
            mapping overrides entries of it, by position or name.
        finder: Compares names, and records the origins of overrides.

    Returns:
        Slot → part, None, or list of parts.

    Raises:
        RecipeError: Knobs without a part.
    """
    slots: dict[str, Any] = {}
    for slot, choice in algorithm.target.slots().items():
        if slot in MANY:
            slots[slot] = _merged_list(slot, [_named(spec) for spec in _listed(choice)], overrides, finder)
        else:
            default = None if choice is None else _named(choice)
            slots[slot] = _merged_part(slot, default, overrides[slot], finder) if slot in overrides else default
    return slots


def _merged_list(slot: str, defaults: list[PartSpec], overrides: Mapping[str, Any], finder: Finder) -> list[PartSpec]:
    override = overrides.get(slot, {})
    if not isinstance(override, dict):
        return override or []
    merged = list(defaults)
    for step, part in override.items():
        index = position(defaults, step, finder.address("algorithm", slot))
        merged[index] = _merged_part(slot, defaults[index], part, finder)
        finder.move(("algorithm", slot, step), ("algorithm", slot, index))
    return merged


def _merged_part(slot: str, default: PartSpec | None, override: PartSpec | None, finder: Finder) -> Any:
    if override is None or (default is None and override.get("name")):
        return override
    if default is None:
        raise RecipeError(
            f"expected a part, got the knobs {', '.join(override) or '(none)'}: the algorithm has no part here",
            where=finder.address("algorithm", slot),
            hint=f"name one: `{slot}: {{name: …}}`",
        )
    steps = ("algorithm", slot)
    if override.get("name") is None or finder.is_same_part(slot, default["name"], override["name"], steps):
        return {**default, **override, "name": default["name"]}
    return override


def _listed(choice: Spec | Sequence[Spec]) -> list[Any]:
    return list(choice) if isinstance(choice, Sequence) and not isinstance(choice, str) else [choice]


def _named(spec: Any) -> PartSpec:
    return {"name": spec} if isinstance(spec, str) else dict(spec)
