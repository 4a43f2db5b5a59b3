"""The symbols of a row: the part that stands for each, its values, where it is written, what the source calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins import schedule
from rlm_plugins.cli.objective_text import Slots, chosen, meaning
from rlm_plugins.cli.text_layout import hanging, short
from rlm_plugins.cli.value_text import call
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.registry.signature import line_of

Entry = dict[str, Any]


def symbols(slots: Slots, names: Mapping[str, str]) -> list[Entry]:
    """One entry for each part of an equation, from the loss down.

    Args:
        slots: The parts.
        names: Slot or part → what the source of the row calls it.

    Returns:
        ``symbol``, ``key``, ``name``, ``full_name``, ``knobs`` (name → value), ``call`` (part and knobs as text),
        ``formula``, ``file``, ``line``, ``in_source`` (empty where the source has no name of its own).
    """
    return [
        {
            "symbol": symbol,
            "key": (key := HOOKS[bound.part.hook].key),
            "name": bound.part.name,
            "full_name": bound.part.full_name,
            "knobs": {name: schedule.plain(value) for name, value in bound.knobs.items()},
            "call": call(bound),
            "formula": meaning(bound),
            "file": bound.part.file,
            "line": line_of(bound.part.target),
            "in_source": names.get(bound.part.name, names.get(key, "")),
        }
        for symbol, bound in chosen(slots)
    ]


def render(entries: Sequence[Entry]) -> str:
    """The same as text: a paragraph for each symbol."""
    width = max((len(entry["symbol"]) for entry in entries), default=0)
    lines = [
        hanging(line, f"  {'' if n else entry['symbol']:<{width}}  ")
        for entry in entries
        for n, line in enumerate(_lines(entry))
    ]
    return "\n".join(lines)


def _lines(entry: Entry) -> list[str]:
    called = f"in the source: {entry['in_source']}" if entry["in_source"] else ""
    lines = [f"{entry['key']} = {entry['call']}", entry["formula"], called, f"{short(entry['file'])}:{entry['line']}"]
    return [line for line in lines if line]
