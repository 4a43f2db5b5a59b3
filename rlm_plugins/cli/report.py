"""What :mod:`rlm_plugins.cli.explain` and the listings know, as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlm_plugins.algorithm import base_name
from rlm_plugins.cli import convention_card as cards
from rlm_plugins.cli import symbols
from rlm_plugins.cli.text_layout import columns, indented, plain, prose, short, titled

Entry = dict[str, Any]


def tell(entry: Entry) -> str:
    """An entry of `explain` as text."""
    tellers: dict[str, Callable[[Entry], str]] = {
        "part": _part,
        "row": _row,
        "hook": _hook,
        "key": _key,
        "metric": _metric,
    }
    return tellers[entry["kind"]](entry)


def folded(parts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Names with what they are about; the conventions of a row on one line below it."""
    listed = list(parts)
    rows = [name for name, _ in listed if "@" not in name]
    found: list[tuple[str, str]] = []
    for name, about in listed:
        if base_name(name) in rows and "@" in name:
            continue
        conventions = [f"@{other.partition('@')[2]}" for other, _ in listed if other.startswith(f"{name}@")]
        found += [(name, about), *([("", " ".join(conventions))] if conventions else [])]
    return found


def _part(entry: Entry) -> str:
    knobs = columns(
        (k["name"], k["type"], "required" if k["required"] else plain(k["default"])) for k in entry["knobs"]
    )
    return (
        f"{_head(entry)}\n  {short(entry['file'])}:{entry['line']}"
        + titled("formula", "" if entry["doc"].startswith(entry["formula"]) else f"  {entry['formula']}")
        + titled("meaning", indented(entry["doc"]))
        + titled("knobs", knobs)
        + titled("data", _data(entry["data"]))
    )


def _row(entry: Entry) -> str:
    equation = [f"  {entry['objective']}", symbols.tell(entry["symbols"])]
    return (
        f"{_head(entry)}\n  {short(entry['file'])}:{entry['line']}"
        + titled("meaning", prose(entry["about"]))
        + titled("source", prose(entry["source"]))
        + titled("pitfalls", prose(entry["pitfalls"]))
        + titled("equation", "\n\n".join(filter(str.strip, equation)))
        + titled("conventions", cards.tell(entry["card"]))
        + titled("engine", f"  {entry['trainer']}")
        + titled("problem", indented(entry["problem"]))
    )


def objective(line: str, legend: Sequence[Sequence[str]]) -> str:
    """The objective and what its symbols stand for."""
    rows = [(symbol, part, meaning) for symbol, meaning, part in legend]
    return f"  {line}\n{columns(rows, indent='    ')}".rstrip() if line else ""


def _hook(entry: Entry) -> str:
    many = "a list of parts" if entry["many"] else "one part"
    return (
        f"{entry['name']}  hook: recipe key `{entry['key']}` ({many}), symbol {entry['symbol']}"
        + titled("meaning", indented(entry["doc"]))
        + titled("data", _data(entry["data"]))
        + titled("parts", columns(folded((part["name"], part["about"]) for part in entry["parts"])))
    )


def _key(entry: Entry) -> str:
    keys = columns((key["name"], key["type"], f"default {plain(key['default'])}") for key in entry["keys"])
    return (
        f"{entry['name']}  recipe key: {entry['type']}"
        + titled("meaning", indented(entry["doc"]))
        + titled("keys", keys)
    )


def _metric(entry: Entry) -> str:
    facts = [(key, entry[key]) for key in ("formula", "meaning", "healthy") if entry[key]]
    return f"{entry['name']}  logged number\n{columns(facts)}"


def _head(entry: Entry) -> str:
    kind = "row of the algorithm table" if entry["kind"] == "row" else f"part for `{entry['key']}` ({entry['hook']})"
    return f"{entry['name']}  {kind}, from {entry['plugin']} ({entry['origin']})"


def _data(data: Sequence[Entry]) -> str:
    return columns((d["name"], d["shape"], d["meaning"], "" if d["required"] else "optional") for d in data)
