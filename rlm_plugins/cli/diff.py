"""``rlm diff``: the listed between two algorithms, symbol by symbol."""

from __future__ import annotations

from typing import Any

from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.report.objective_text import objective, slots_of
from rlm_plugins.report.part_text import SYMBOLS, Slots, call, change_line, changes, changes_of_part, matched_parts
from rlm_plugins.report.text_layout import columns, fitted, indented, titled

Entry = dict[str, Any]


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
    unchanged = [old for old, new in matched_parts(*slots) if old is not None and not list(changes_of_part(old, new))]
    return {
        "algorithms": [_algorithm(part.name, part.target, slot) for part, slot in zip(algorithms, slots, strict=True)],
        "changes": changes(*slots),
        "same": [{"symbol": SYMBOLS[_key(part)], "key": _key(part), "call": call(part)} for part in unchanged],
    }


def render(comparison: Entry, width: int) -> str:
    """Return a comparison as text of at most `width` columns, if words allow it."""
    before, after = comparison["algorithms"]
    lines = [change_line(change) for change in comparison["changes"]]
    if before["trainer"] != after["trainer"]:
        lines.append(["", "trainer", before["trainer"], after["trainer"]])
    listed = "\n".join(fitted([["", "", before["name"], after["name"]], *lines], width - 2)) if lines else "nothing"
    unchanged = columns((entry["symbol"], entry["key"], entry["call"]) for entry in comparison["same"])
    summaries = columns((algorithm["name"], algorithm["about"]) for algorithm in (before, after))
    losses = columns((algorithm["name"], algorithm["objective"]) for algorithm in (before, after))
    return (
        f"{before['name']} → {after['name']}\n{summaries}"
        + titled("changes", indented(listed))
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


def _key(part: Bound) -> str:
    return HOOKS[part.part.hook].key
