"""Algorithms: one line per algorithm, one column per symbol, by family; and two of them compared."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlm_lab.part_changes import change_line, changes, changes_of_part, matched_parts
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.report.objective_text import SYMBOLS, Slots, call, formula_name, objective, slots_of
from rlm_plugins.report.text_layout import fitted, plain, report
from rlm_plugins.specs import FAMILIES, SLOTS, base_name

Entry = dict[str, Any]
ARXIV = r"\b\d\d(?:0[1-9]|1[0-2])\.\d{4,5}\b"
COLUMNS = ("advantage", "importance", "policy_loss", "token_weights", "aggregator")
"""The slots with a column of their own; all others are extras."""


def table(registry: Registry) -> list[Entry]:
    """Return an entry for every algorithm, by family.

    Returns:
        ``name`` (the shortest that finds it), ``full_name``, ``family``, ``about``, ``source``, ``year`` (null:
        unknown), ``trainer``, ``slots`` (key → the choice of the algorithm).
    """
    parts = [part for part in registry if part.hook == "rlm_algorithms"]
    entries = [_entry(part, name) for part, name in zip(parts, registry.names("rlm_algorithms"), strict=True)]
    order = {family: position for position, family in enumerate(FAMILIES)}
    return sorted(entries, key=lambda entry: order.get(entry["family"], len(order)))


def year_of(source: str) -> int | None:
    """Return the year of a source: of its first arXiv number, or the first year in it.

    The text before a semicolon counts first.

    >>> year_of("DeepSeekMath, arXiv 2402.03300 eq. 3–4"), year_of("Williams 1992; as in arXiv 2402.14740")
    (2024, 1992)
    """
    for text in (source.partition(";")[0], source):
        if number := re.search(ARXIV, text):
            return 2000 + int(number[0][:2])
        if year := re.search(r"\b(?:19|20)\d\d\b", text):
            return int(year[0])
    return None


def reference(source: str) -> str:
    """Return a source in a word or two: its arXiv number, or its beginning.

    >>> reference("DeepSeekMath, arXiv 2402.03300 eq. 3–4"), reference("Williams 1992; as in arXiv 2402.14740")
    ('2402.03300', 'Williams 1992')
    """
    text = source.partition(";")[0]
    number = re.search(ARXIV, text)
    return number[0] if number else re.split(r"[,(]", text)[0].strip()


def render(entries: Sequence[Entry], width: int) -> str:
    """Return the table as text of at most `width` columns, if words allow it."""
    entries, conventions = folded(entries)
    head = ["algorithm", *(f"{SYMBOLS[key]}\n{key}" for key in COLUMNS), "extras"]
    lines = iter(fitted([head, *(_cells(entry, conventions[entry["name"]]) for entry in entries)], width))
    text = next(lines)
    for family, members in itertools.groupby(entries, key=lambda entry: entry["family"]):
        text += "\n\n".join([f"\n\n{family}", *(next(lines) for _ in members)])
    return text


def _entry(part: Part, name: str) -> Entry:
    algorithm = part.target
    return {
        "name": name,
        "full_name": part.full_name,
        **{key: getattr(algorithm, key) for key in ("family", "about", "source", "trainer")},
        "year": year_of(algorithm.source),
        "slots": algorithm.slots(),
    }


def folded(entries: Sequence[Entry]) -> tuple[list[Entry], dict[str, list[str]]]:
    """Return the algorithms without their conventions, and name → names of its conventions (``@trl``)."""
    papers = {entry["name"] for entry in entries if "@" not in entry["name"]}
    listed = [entry for entry in entries if entry["name"] in papers or base_name(entry["name"]) not in papers]
    conventions: dict[str, list[str]] = {entry["name"]: [] for entry in listed}
    for name in (entry["name"] for entry in entries if entry not in listed):
        conventions[base_name(name)].append(f"@{name.partition('@')[2]}")
    return listed, conventions


def _cells(entry: Entry, conventions: Sequence[str] = ()) -> list[str]:
    source, year, slots = reference(entry["source"]), entry["year"], entry["slots"]
    dated = f" · {year}" if year and str(year) not in source else ""
    extras = [f"{SYMBOLS[key]} {item}" for key in SLOTS if key not in COLUMNS for item in _specs(slots[key])]
    extras += [] if slots["aggregator"] else [f"trainer {entry['trainer']}"]
    extras += [f"also {' '.join(conventions)}"] if conventions else []
    cells = ["\n".join(_specs(slots[key])) or "–" for key in COLUMNS]
    return [f"{entry['name']}\n{source}{dated}", *cells, "\n".join(extras) or "–"]


def _specs(spec: Any) -> list[str]:
    """Return the parts of a slot, with knobs as formulas spell them: ``clip ε=0.2``."""
    if spec is None:
        return []
    if isinstance(spec, str):
        return [spec]
    if isinstance(spec, Mapping):
        knobs = [f"{formula_name(knob)}={_value(value)}" for knob, value in spec.items() if knob != "name"]
        return [" ".join([spec["name"], *knobs])]
    return [text for item in spec for text in _specs(item)]


def _value(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if number else plain(value)


# ---- two algorithms


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
    command = f"rlm explain {before} {after}"
    algorithms = [registry.find("rlm_algorithms", name, where=command) for name in (before, after)]
    slots = [slots_of(part.target, registry) for part in algorithms]
    unchanged = [old for old, new in matched_parts(*slots) if old is not None and not list(changes_of_part(old, new))]
    keys = [HOOKS[bound.part.hook].key for bound in unchanged]
    return {
        "algorithms": [_summary(part, slot) for part, slot in zip(algorithms, slots, strict=True)],
        "changes": changes(*slots),
        "same": [{"symbol": SYMBOLS[key], "key": key, "call": call(b)} for key, b in zip(keys, unchanged, strict=True)],
    }


def render_diff(comparison: Entry, width: int) -> str:
    """Return a comparison as text of at most `width` columns, if words allow it."""
    before, after = comparison["algorithms"]
    lines = [change_line(change) for change in comparison["changes"]]
    if before["trainer"] != after["trainer"]:
        lines.append(["", "trainer", before["trainer"], after["trainer"]])
    changed = fitted([["", "", before["name"], after["name"]], *lines], width - 2)
    sections = {
        f"{before['name']} → {after['name']}": [(one["name"], one["about"]) for one in (before, after)],
        "changes": "\n".join(changed) if lines else "nothing",
        "unchanged": [(same["symbol"], same["key"], same["call"]) for same in comparison["same"]],
        "objective": [(one["name"], one["objective"]) for one in (before, after)],
    }
    return report("", sections).lstrip()


def _summary(part: Part, slots: Slots) -> Entry:
    algorithm = part.target
    loss = objective(slots) if slots["aggregator"] else f"that of the trainer {algorithm.trainer}"
    return {"name": part.name, "about": algorithm.about, "objective": loss, "trainer": algorithm.trainer}
