"""The symbols of an algorithm: the part for each, its knobs, its source line, and its name in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins import schedule
from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry.signature import line_of
from rlm_plugins.report.objective_text import meaning
from rlm_plugins.report.part_text import Slots, call, parts_of
from rlm_plugins.report.text_layout import hanging, short

Entry = dict[str, Any]


def symbols(slots: Slots, names: Mapping[str, str]) -> list[Entry]:
    """Return an entry for each part of an equation, from the loss down.

    Args:
        slots: The parts.
        names: Slot or part → its name in the paper.

    Returns:
        ``symbol``, ``key``, ``name``, ``full_name``, ``knobs`` (name → value), ``call`` (part and knobs as text),
        ``formula``, ``file``, ``line``, ``in_source`` (its name in the paper; may be empty).
    """
    return [
        {
            "symbol": symbol,
            "key": HOOKS[bound.part.hook].key,
            "name": bound.part.name,
            "full_name": bound.part.full_name,
            "knobs": {name: schedule.as_recipe_value(value) for name, value in bound.knobs.items()},
            "call": call(bound),
            "formula": meaning(bound),
            "file": bound.part.file,
            "line": line_of(bound.part.target),
            "in_source": names.get(bound.part.name, names.get(HOOKS[bound.part.hook].key, "")),
        }
        for symbol, bound in parts_of(slots)
    ]


def render(entries: Sequence[Entry]) -> str:
    """Return the entries as text, a paragraph for each symbol."""
    width = max((len(entry["symbol"]) for entry in entries), default=0)
    lines = [
        hanging(line, f"  {'' if n else entry['symbol']:<{width}}  ")
        for entry in entries
        for n, line in enumerate(_lines(entry))
    ]
    return "\n".join(lines)


def _lines(entry: Entry) -> list[str]:
    in_source = f"in the source: {entry['in_source']}" if entry["in_source"] else ""
    lines = [
        f"{entry['key']} = {entry['call']}",
        entry["formula"],
        in_source,
        f"{short(entry['file'])}:{entry['line']}",
    ]
    return [line for line in lines if line]
