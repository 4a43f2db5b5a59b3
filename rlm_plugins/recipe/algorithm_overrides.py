"""A row of the algorithm table and what a recipe says differently, slot by slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins.algorithm import Spec
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.list_entries import position
from rlm_plugins.recipe.part_lookup import Finder
from rlm_plugins.recipe.sections import MANY
from rlm_plugins.registry.part import Part

Named = dict[str, Any]
"""``{name: …, knobs…}``"""


def merge(row: Part, said: Mapping[str, Any], finder: Finder) -> dict[str, Any]:
    """Fills every slot.

    Args:
        row: What the algorithm chooses.
        said: Slot → what the recipe says there. Null empties it; another ``name`` swaps the part, and the row's knobs
            go with the old one; knobs alone (or with the row's own name) turn those of the row's part; a list replaces
            the row's list; a mapping of a list slot changes entries of the row's list, by position or name.
        finder: Compares names, and moves the origins of such changes to where they take effect.

    Returns:
        Slot → part, None, or list of parts.

    Raises:
        RecipeError: Knobs for a part that is not there.
    """
    slots: dict[str, Any] = {}
    for slot, choice in row.target.slots().items():
        if slot in MANY:
            slots[slot] = _several(slot, [_named(spec) for spec in _listed(choice)], said, finder)
        else:
            own = None if choice is None else _named(choice)
            slots[slot] = _changed(slot, own, said[slot], finder) if slot in said else own
    return slots


def _several(slot: str, own: list[Named], said: Mapping[str, Any], finder: Finder) -> list[Named]:
    change = said.get(slot, {})
    if not isinstance(change, dict):
        return change or []
    merged = list(own)
    for step, part in change.items():
        index = position(own, step, finder.address("algorithm", slot))
        merged[index] = _changed(slot, own[index], part, finder)
        finder.move(("algorithm", slot, step), ("algorithm", slot, index))
    return merged


def _changed(slot: str, own: Named | None, said: Named | None, finder: Finder) -> Any:
    if said is None or (own is None and said.get("name")):
        return said
    if own is None:
        raise RecipeError(
            f"found {', '.join(said) or 'nothing'}, but the algorithm has no part here whose knobs could be turned",
            where=finder.address("algorithm", slot),
            hint=f"name one: `{slot}: {{name: …}}`",
        )
    steps = ("algorithm", slot)
    if said.get("name") is None or finder.same(slot, own["name"], said["name"], steps):
        return {**own, **said, "name": own["name"]}
    return said


def _listed(choice: Spec | Sequence[Spec]) -> list[Any]:
    return list(choice) if isinstance(choice, Sequence) and not isinstance(choice, str) else [choice]


def _named(spec: Any) -> Named:
    return {"name": spec} if isinstance(spec, str) else dict(spec)
