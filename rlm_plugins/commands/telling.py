"""What :mod:`rlm_plugins.commands.explain` and the listings know, as text for a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlm_plugins.rows import family

Entry = dict[str, Any]


def columns(rows: Iterable[Sequence[str]], indent: str = "  ") -> str:
    """Rows as aligned columns; nothing is cut off or wrapped, so that the text can be searched.

    >>> print(columns([("a", "one"), ("bcd", "two")], indent=""))
    a    one
    bcd  two
    """
    table = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))] if table else []
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def titled(title: str, text: str) -> str:
    """`text` under its title, a blank line before it; nothing when there is no text."""
    return f"\n\n{title}\n{text}" if text else ""


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
        if family(name) in rows and "@" in name:
            continue
        conventions = [f"@{other.partition('@')[2]}" for other, _ in listed if other.startswith(f"{name}@")]
        found += [(name, about), *([("", " ".join(conventions))] if conventions else [])]
    return found


def _part(entry: Entry) -> str:
    knobs = columns(
        (k["name"], k["type"], "required" if k["required"] else _plain(k["default"])) for k in entry["knobs"]
    )
    return (
        f"{_head(entry)}\n  {entry['file']}:{entry['line']}"
        + titled("formula", "" if entry["doc"].startswith(entry["formula"]) else f"  {entry['formula']}")
        + titled("meaning", _indented(entry["doc"]))
        + titled("knobs", knobs)
        + titled("data", _data(entry["data"]))
    )


def _row(entry: Entry) -> str:
    slots = [(key, _spec(value)) for key, value in entry["slots"].items() if value]
    return (
        f"{_head(entry)}\n  {entry['file']}"
        + titled("meaning", f"  {entry['about']}")
        + titled("source", f"  {entry['source']}")
        + titled("pitfalls", f"  {entry['pitfalls']}" if entry["pitfalls"] else "")
        + titled("slots", columns([("trainer", entry["trainer"]), *slots]))
        + titled("objective", objective(entry["objective"], entry["legend"]))
        + titled("conventions", card(entry["card"]))
        + titled("problem", _indented(entry["problem"]))
    )


def objective(line: str, legend: Sequence[Sequence[str]]) -> str:
    """The objective and what its symbols stand for."""
    rows = [(symbol, part, meaning) for symbol, meaning, part in legend]
    return f"  {line}\n{columns(rows, indent='    ')}".rstrip() if line else ""


def card(entry: Entry) -> str:
    """The conventions of a row side by side, the one that was asked for marked; below each what is different in it."""
    if not entry:
        return ""
    rows = [("", "", "Â", "loss", "|∇|", "", "")]
    for line in entry["conventions"]:
        mark = ">" if line["name"] == entry["running"] else ""
        numbers = ["–" if line[key] is None else f"{line[key]:.3f}" for key in ("winner", "loss", "gradient")]
        changes = [(where, f"{_plain(was) or '–'} → {_plain(now) or '–'}") for where, was, now in line["differs"]]
        first, *rest = changes or [("", "")]
        rows += [(mark, line["name"], *numbers, *first), *((*[""] * 5, *change) for change in rest)]
    rewards = " ".join(f"{r:g}" for r in entry["rewards"])
    about = f"  Â of the winner of rewards {rewards}; loss and norm of its gradient on ten ragged rows of three groups"
    return f"{about}\n{columns(rows)}"


def _hook(entry: Entry) -> str:
    many = "a list of parts" if entry["many"] else "one part"
    return (
        f"{entry['name']}  hook: recipe key `{entry['key']}` ({many}), symbol {entry['symbol']}"
        + titled("meaning", _indented(entry["doc"]))
        + titled("data", _data(entry["data"]))
        + titled("parts", columns(folded((part["name"], part["about"]) for part in entry["parts"])))
    )


def _key(entry: Entry) -> str:
    keys = columns((key["name"], key["type"], f"default {_plain(key['default'])}") for key in entry["keys"])
    return (
        f"{entry['name']}  recipe key: {entry['type']}"
        + titled("meaning", _indented(entry["doc"]))
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


def _spec(spec: Any) -> str:
    """A slot of a row: ``clip(epsilon=0.2)``."""
    if isinstance(spec, str):
        return spec
    if not isinstance(spec, dict):
        return ", ".join(map(_spec, spec))
    return f"{spec['name']}({', '.join(f'{key}={_plain(value)}' for key, value in spec.items() if key != 'name')})"


def _plain(value: Any) -> str:
    """A value as a recipe would write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
