"""``rlm diff``: what changes from one row of the table to another, symbol by symbol, with values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlm_plugins import schedule
from rlm_plugins.cli.objective_text import DOWNWARDS, SYMBOLS, Slots, chosen, objective, slots_of
from rlm_plugins.cli.text_layout import columns, fitted, indented, plain, titled
from rlm_plugins.cli.value_text import call, given, meant
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound

Entry = dict[str, Any]
NONE = "–"


def diff(before: str, after: str, registry: Registry) -> Entry:
    """Two rows, compared.

    Args:
        before: Name of a row.
        after: Name of another.
        registry: Where they are found.

    Returns:
        ``rows`` (name, about, objective, trainer of both), ``changes`` (symbol, key, name, knob, before, after) and
        ``same`` (symbol, key, call). In a change ``knob`` is null where the part itself changes; else before and after
        are values of that knob.

    Raises:
        RecipeError: No row is called so, or a row names a part nobody offers.
    """
    rows = [registry.find("rlm_algorithms", name, where=f"rlm diff {before} {after}") for name in (before, after)]
    slots = [slots_of(part.target, registry) for part in rows]
    pairs = _pairs(*slots)
    told = [_row(part.name, part.target, slot) for part, slot in zip(rows, slots, strict=True)]
    changes = [change for old, new in pairs for change in _changes(old, new)]
    same = [old for old, new in pairs if old is not None and not list(_changes(old, new))]
    kept = [{"symbol": _symbol(part), "key": _key(part), "call": call(part)} for part in same]
    return {"rows": told, "changes": changes, "same": kept}


def render(found: Entry, width: int) -> str:
    """The same as text of at most `width` columns, if words allow it."""
    before, after = found["rows"]
    lines = [line(change) for change in found["changes"]]
    if before["trainer"] != after["trainer"]:
        lines.append(["", "engine", before["trainer"], after["trainer"]])
    changes = "\n".join(fitted([["", "", before["name"], after["name"]], *lines], width - 2)) if lines else "nothing"
    same = columns((one["symbol"], one["key"], one["call"]) for one in found["same"])
    both = columns((row["name"], row["about"]) for row in (before, after))
    losses = columns((row["name"], row["objective"]) for row in (before, after))
    return (
        f"{before['name']} → {after['name']}\n{both}"
        + titled("changes", indented(changes))
        + titled("the same", same)
        + titled("objective", losses)
    )


def _row(name: str, row: Any, slots: Slots) -> Entry:
    return {
        "name": name,
        "about": row.about,
        "objective": objective(slots) if slots["aggregator"] else f"that of the engine {row.trainer}",
        "trainer": row.trainer,
    }


def _pairs(before: Slots, after: Slots) -> list[tuple[Bound | None, Bound | None]]:
    """What stands in the same place of both, from the loss down, None for nothing; in lists, parts of one name."""
    old, new = _places(before), _places(after)
    places = sorted(old | new, key=lambda place: DOWNWARDS.index(place[0]))
    return [(old.get(place), new.get(place)) for place in places]


def _places(slots: Slots) -> dict[tuple[str, str, int], Bound]:
    """Where each part stands: its slot; in a list its name too, and how many of that name come before it."""
    found: dict[tuple[str, str, int], Bound] = {}
    for _, part in chosen(slots):
        place = (_key(part), part.part.full_name if HOOKS[part.part.hook].many else "")
        found[*place, sum(other[:2] == place for other in found)] = part
    return found


def _changes(old: Bound | None, new: Bound | None) -> Iterator[Entry]:
    part = old or new
    assert part is not None
    entry = {"symbol": _symbol(part), "key": _key(part), "name": part.part.name, "knob": None}
    if old is None or new is None or old.part.full_name != new.part.full_name:
        yield {**entry, "before": call(old) if old else None, "after": call(new) if new else None}
        return
    for knob in given(old) | given(new):
        if given(old).get(knob) != given(new).get(knob):
            yield {**entry, "knob": knob, "before": _value(old, knob), "after": _value(new, knob)}


def _value(part: Bound, knob: str) -> Any:
    """A value; null with what it means in brackets."""
    value = schedule.plain(given(part).get(knob))
    stands_for = meant(part, knob) if knob in part.knobs else value
    return f"null ({plain(stands_for)})" if value is None and stands_for is not None else value


def line(change: Entry) -> list[str]:
    """A change in words: symbol, where, before, after."""
    whole = change["knob"] is None
    where = change["key"] if whole else f"{change['name']}.{change['knob']}"
    values = [NONE if whole and change[side] is None else plain(change[side]) for side in ("before", "after")]
    return [change["symbol"], where, *values]


def _symbol(part: Bound) -> str:
    return SYMBOLS[_key(part)]


def _key(part: Bound) -> str:
    return HOOKS[part.part.hook].key
