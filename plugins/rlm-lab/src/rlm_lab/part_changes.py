"""Differences between the parts of two algorithms, and names of parts with the conventions of an algorithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.equation.knobs import as_recipe_value
from rlm_plugins.registry.part import Bound
from rlm_plugins.report.objective_text import DOWNWARDS, SYMBOLS, Slots, call, effective, parts_of, settings_of
from rlm_plugins.report.text_layout import plain
from rlm_plugins.specs import base_name

Entry = dict[str, Any]
NONE = "–"


def folded(parts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return names and descriptions, with the conventions of an algorithm on one line below it."""
    listed = list(parts)
    algorithms = [name for name, _ in listed if "@" not in name]
    lines: list[tuple[str, str]] = []
    for name, description in listed:
        if base_name(name) in algorithms and "@" in name:
            continue
        conventions = [f"@{variant.partition('@')[2]}" for variant, _ in listed if variant.startswith(f"{name}@")]
        lines += [(name, description), *([("", " ".join(conventions))] if conventions else [])]
    return lines


def changes(before: Slots, after: Slots) -> list[Entry]:
    """Return what differs between two mappings of slots to parts.

    Returns:
        ``symbol``, ``key``, ``name``, ``knob``, ``before``, ``after``. If the part itself changes, ``knob`` is null;
        else before and after are values of that knob.
    """
    return [change for old, new in matched_parts(before, after) for change in changes_of_part(old, new)]


def matched_parts(before: Slots, after: Slots) -> list[tuple[Bound | None, Bound | None]]:
    """Return old and new part per slot and name, from the loss down; None where there is none."""
    old_parts, new_parts = _parts_by_key(before), _parts_by_key(after)
    keys = sorted(old_parts | new_parts, key=lambda key: DOWNWARDS.index(key[0]))
    return [(old_parts.get(key), new_parts.get(key)) for key in keys]


def _parts_by_key(slots: Slots) -> dict[tuple[str, str, int], Bound]:
    """Return each part by its slot, name (in a list), and number of earlier parts of that name."""
    parts: dict[tuple[str, str, int], Bound] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for _, part in parts_of(slots):
        hook = HOOKS[part.part.hook]
        key = (hook.key, part.part.full_name if hook.many else "")
        parts[*key, counts[key]] = part
        counts[key] += 1
    return parts


def changes_of_part(old: Bound | None, new: Bound | None) -> Iterator[Entry]:
    """Yield the :func:`changes` between two parts of one slot."""
    part = old or new
    assert part is not None
    key = HOOKS[part.part.hook].key
    entry = {"symbol": SYMBOLS[key], "key": key, "name": part.part.name, "knob": None}
    if old is None or new is None or old.part.full_name != new.part.full_name:
        yield {**entry, "before": call(old) if old else None, "after": call(new) if new else None}
        return
    for knob in settings_of(old) | settings_of(new):
        if settings_of(old).get(knob) != settings_of(new).get(knob):
            yield {**entry, "knob": knob, "before": _value(old, knob), "after": _value(new, knob)}


def _value(part: Bound, knob: str) -> Any:
    """Return a value; null with its effective value in brackets."""
    value = as_recipe_value(settings_of(part).get(knob))
    default = effective(part, knob) if knob in part.knobs else value
    return f"null ({plain(default)})" if value is None and default is not None else value


def change_line(change: Entry) -> list[str]:
    """Return a change as cells: symbol, address, before, after."""
    of_part = change["knob"] is None
    address = change["key"] if of_part else f"{change['name']}.{change['knob']}"
    values = [NONE if of_part and change[side] is None else plain(change[side]) for side in ("before", "after")]
    return [change["symbol"], address, *values]
