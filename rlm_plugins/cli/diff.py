"""``rlm diff``: the differences between two algorithms, symbol by symbol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rlm_plugins import schedule
from rlm_plugins.cli.objective_text import DOWNWARDS, SYMBOLS, Slots, objective, parts_of, slots_of
from rlm_plugins.cli.text_layout import columns, fitted, indented, plain, titled
from rlm_plugins.cli.value_text import call, effective, settings_of
from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound

Entry = dict[str, Any]
NONE = "–"


def diff(before: str, after: str, registry: Registry) -> Entry:
    """Compare two algorithms.

    Args:
        before: Name of an algorithm.
        after: Name of another.
        registry: Supplies the algorithms and their parts.

    Returns:
        ``algorithms`` (name, about, objective, trainer of both), ``changes`` (symbol, key, name, knob, before, after)
        and ``same`` (symbol, key, call). In a change ``knob`` is null if the part itself changes; else before and
        after are values of that knob.

    Raises:
        RecipeError: An algorithm is unknown, or names an unknown part.
    """
    command = f"rlm diff {before} {after}"
    algorithms = [registry.find("rlm_algorithms", name, where=command) for name in (before, after)]
    slots = [slots_of(part.target, registry) for part in algorithms]
    unchanged = [old for old, new in _matched_parts(*slots) if old is not None and not list(_changes(old, new))]
    return {
        "algorithms": [_algorithm(part.name, part.target, slot) for part, slot in zip(algorithms, slots, strict=True)],
        "changes": changes(*slots),
        "same": [{"symbol": _symbol(part), "key": _key(part), "call": call(part)} for part in unchanged],
    }


def changes(before: Slots, after: Slots) -> list[Entry]:
    """Return what differs between two mappings of slots to parts: see ``changes`` of :func:`diff`."""
    return [change for old, new in _matched_parts(before, after) for change in _changes(old, new)]


def render(comparison: Entry, width: int) -> str:
    """Return a comparison as text of at most `width` columns, if words allow it."""
    before, after = comparison["algorithms"]
    lines = [line(change) for change in comparison["changes"]]
    if before["trainer"] != after["trainer"]:
        lines.append(["", "trainer", before["trainer"], after["trainer"]])
    changes = "\n".join(fitted([["", "", before["name"], after["name"]], *lines], width - 2)) if lines else "nothing"
    unchanged = columns((entry["symbol"], entry["key"], entry["call"]) for entry in comparison["same"])
    summaries = columns((algorithm["name"], algorithm["about"]) for algorithm in (before, after))
    losses = columns((algorithm["name"], algorithm["objective"]) for algorithm in (before, after))
    return (
        f"{before['name']} → {after['name']}\n{summaries}"
        + titled("changes", indented(changes))
        + titled("unchanged", unchanged)
        + titled("objective", losses)
    )


def _algorithm(name: str, algorithm: Any, slots: Slots) -> Entry:
    return {
        "name": name,
        "about": algorithm.about,
        "objective": objective(slots) if slots["aggregator"] else f"that of the trainer {algorithm.trainer}",
        "trainer": algorithm.trainer,
    }


def _matched_parts(before: Slots, after: Slots) -> list[tuple[Bound | None, Bound | None]]:
    """Return old and new part per slot and name, from the loss down; None where there is none."""
    old_parts, new_parts = _parts_by_key(before), _parts_by_key(after)
    keys = sorted(old_parts | new_parts, key=lambda key: DOWNWARDS.index(key[0]))
    return [(old_parts.get(key), new_parts.get(key)) for key in keys]


def _parts_by_key(slots: Slots) -> dict[tuple[str, str, int], Bound]:
    """Return each part by its slot, name (in a list), and number of earlier parts of that name."""
    parts: dict[tuple[str, str, int], Bound] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for _, part in parts_of(slots):
        key = (_key(part), part.part.full_name if HOOKS[part.part.hook].many else "")
        parts[*key, counts[key]] = part
        counts[key] += 1
    return parts


def _changes(old: Bound | None, new: Bound | None) -> Iterator[Entry]:
    part = old or new
    assert part is not None
    entry = {"symbol": _symbol(part), "key": _key(part), "name": part.part.name, "knob": None}
    if old is None or new is None or old.part.full_name != new.part.full_name:
        yield {**entry, "before": call(old) if old else None, "after": call(new) if new else None}
        return
    for knob in settings_of(old) | settings_of(new):
        if settings_of(old).get(knob) != settings_of(new).get(knob):
            yield {**entry, "knob": knob, "before": _value(old, knob), "after": _value(new, knob)}


def _value(part: Bound, knob: str) -> Any:
    """Return a value; null with its effective value in brackets."""
    value = schedule.as_recipe_value(settings_of(part).get(knob))
    default = effective(part, knob) if knob in part.knobs else value
    return f"null ({plain(default)})" if value is None and default is not None else value


def line(change: Entry) -> list[str]:
    """Return a change as cells: symbol, address, before, after."""
    of_part = change["knob"] is None
    address = change["key"] if of_part else f"{change['name']}.{change['knob']}"
    values = [NONE if of_part and change[side] is None else plain(change[side]) for side in ("before", "after")]
    return [change["symbol"], address, *values]


def _symbol(part: Bound) -> str:
    return SYMBOLS[_key(part)]


def _key(part: Bound) -> str:
    return HOOKS[part.part.hook].key
