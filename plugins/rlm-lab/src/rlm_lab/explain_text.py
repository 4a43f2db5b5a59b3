"""The entries of :mod:`rlm_lab.explain` as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlm_lab import convention_card
from rlm_lab.part_changes import folded
from rlm_plugins.equation.glossary import describe
from rlm_plugins.report.text_layout import columns, indented, plain, report, short, titled

Entry = dict[str, Any]
WIDTH = 100
"""Columns of a paragraph."""
_WRAPPING: Any = {"break_long_words": False, "break_on_hyphens": False}


def render(entry: Entry) -> str:
    """Return an entry of `explain` as text."""
    by_name: dict[str, list[str]] = {}
    for term, name in entry.get("elsewhere", ()):
        by_name.setdefault(name, []).append(term)
    terms = (hanging(", ".join(spellings), f"  {describe(name)}: ") for name, spellings in by_name.items())
    return _RENDERERS[entry["kind"]](entry) + titled("known elsewhere as", "\n".join(terms))


def _part(entry: Entry) -> str:
    sections = {
        "formula": "" if entry["doc"].startswith(entry["formula"]) else entry["formula"],
        "meaning": entry["doc"],
        "knobs": [(knob["name"], knob["type"], _default(knob)) for knob in entry["knobs"]],
        "data": _data(entry["data"]),
        "members": [(member["name"], member["about"]) for member in entry["members"]],
    }
    return report(_head(entry), sections)


def _algorithm(entry: Entry) -> str:
    sections = {
        "meaning": prose(entry["about"]),
        "source": prose(entry["source"]),
        "pitfalls": prose(entry["pitfalls"]),
        "equation": "\n\n".join(filter(None, (entry["objective"], "\n".join(_symbols(entry["symbols"]))))),
        "conventions": convention_card.render(entry["card"]),
        "trainer": entry["trainer"],
        "problem": entry["problem"],
    }
    return report(_head(entry), sections)


def _symbols(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the lines on each symbol: its part, formula, name in the source, and file."""
    width = max((len(entry["symbol"]) for entry in entries), default=0)
    for entry in entries:
        in_source = f"in the source: {entry['in_source']}" if entry["in_source"] else ""
        place = f"{short(entry['file'])}:{entry['line']}"
        lines = (f"{entry['key']} = {entry['call']}", entry["formula"], in_source, place)
        for n, line in enumerate(filter(None, lines)):
            yield hanging(line, f"{'' if n else entry['symbol']:<{width}}  ")


def _hook(entry: Entry) -> str:
    many = "a list of parts" if entry["many"] else "one part"
    sections = {
        "meaning": entry["doc"],
        "data": _data(entry["data"]),
        "parts": folded((part["name"], part["about"]) for part in entry["parts"]),
    }
    return report(f"{entry['name']}  hook: recipe key `{entry['key']}` ({many}), symbol {entry['symbol']}", sections)


def _knob(entry: Entry) -> str:
    lines = [(part["address"], part["type"], _default(part), part["about"]) for part in entry["parts"]]
    return f"{entry['name']}  knob\n{columns(lines)}"


def _key(entry: Entry) -> str:
    default = "" if entry["keys"] or entry["default"] == "" else f", default {plain(entry['default'])}"
    sections = {"meaning": prose(entry["doc"]), "keys": "\n".join(map(_key_below, entry["keys"]))}
    return report(f"{entry['name']}  recipe key: {entry['type']}{default}", sections)


def _key_below(key: Entry) -> str:
    name = key["address"].rpartition(".")[2]
    default = "" if key["default"] == "" else f", default {plain(key['default'])}"
    doc = indented(prose(key["doc"], 6), "    ")
    return "\n".join(filter(None, [f"{name}: {key['type']}{default}", doc]))


def _setting(entry: Entry) -> str:
    kind = "not a recipe key" if entry["refused"] else f"recipe key `{entry['address']}`"
    default = "" if entry["default"] in (None, "") else f", default {plain(entry['default'])}"
    sections = {
        "meaning": prose(entry["doc"]),
        "in a recipe": prose(entry["refused"]),
        "stands for": list(map(tuple, entry["equivalents"])),
    }
    head = f"{entry['name']}  {kind}, field of {', '.join(entry['classes'])}: {entry['type']}{default}"
    return report(head, sections)


def _batch_field(entry: Entry) -> str:
    phases = " and ".join(entry["phases"])
    facts = [("shape", entry["shape"]), ("meaning", entry["meaning"]), ("phase", phases)]
    return f"{entry['name']}  field of the batch: a part names it to be given it\n{columns(facts)}"


def _metric(entry: Entry) -> str:
    facts = [(key, entry[key]) for key in ("formula", "meaning", "healthy") if entry[key]]
    return f"{entry['name']}  metric\n{columns(facts)}"


def _finding(entry: Entry) -> str:
    rows = [("evidence", entry["evidence"]), ("reported if", " and ".join(entry["bounds"])), ("when", entry["when"])]
    rows += [("try", entry["remedy"]), ("symptoms", ", ".join(entry["symptoms"])), ("example", entry["example"])]
    lines = (hanging(text, f"  {name:<11} ") for name, text in rows if text)
    return "\n".join([f"{entry['name']}  finding of `rlm why`: {entry['severity']}", *lines])


def _term(entry: Entry) -> str:
    lines = [(target["phrase"], target["about"], f"rlm explain {target['address']}") for target in entry["targets"]]
    listed = [f"  {phrase}{about and f': {about}'}\n    {command}" for phrase, about, command in lines]
    return "\n".join([f"{entry['name']}  term of the field, here:", *listed])


def _head(entry: Entry) -> str:
    kind = "algorithm" if entry["kind"] == "algorithm" else f"part for `{entry['key']}` ({entry['hook']})"
    origin = f"from {entry['plugin']} ({entry['origin']})"
    return f"{entry['name']}  {kind}, {origin}\n  {short(entry['file'])}:{entry['line']}"


def _data(data: Sequence[Entry]) -> list[tuple[str, ...]]:
    return [(d["name"], d["shape"], d["meaning"], "" if d["required"] else "optional") for d in data]


def _default(knob: Entry) -> str:
    return "required" if knob["required"] else plain(knob["default"])


_RENDERERS: Mapping[str, Callable[[Entry], str]] = {
    "part": _part,
    "algorithm": _algorithm,
    "hook": _hook,
    "knob": _knob,
    "key": _key,
    "setting": _setting,
    "batch": _batch_field,
    "metric": _metric,
    "finding": _finding,
    "term": _term,
}


def prose(text: str, indent: int = 2) -> str:
    """Return paragraphs, wrapped so that they fit behind `indent` blanks; words are never broken."""
    paragraphs = text.split("\n\n")
    return "\n\n".join("\n".join(textwrap.wrap(paragraph, WIDTH - indent, **_WRAPPING)) for paragraph in paragraphs)


def hanging(text: str, begin: str) -> str:
    """Return a line after `begin`, wrapped below it."""
    indents: Any = {"initial_indent": begin, "subsequent_indent": " " * len(begin)}
    return "\n".join(textwrap.wrap(text, WIDTH + len(begin), **indents, **_WRAPPING))
