"""The entries of :mod:`rlm_plugins.cli.explain` as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlm_plugins.cli import convention_card, symbols
from rlm_plugins.glossary import describe
from rlm_plugins.report.part_text import folded
from rlm_plugins.report.text_layout import columns, hanging, indented, plain, prose, short, titled

Entry = dict[str, Any]


def render(entry: Entry) -> str:
    """Return an entry of `explain` as text."""
    return _RENDERERS[entry["kind"]](entry) + titled("known elsewhere as", _elsewhere(entry.get("elsewhere", ())))


def _part(entry: Entry) -> str:
    knobs = columns((knob["name"], knob["type"], _default(knob)) for knob in entry["knobs"])
    return (
        f"{_head(entry)}\n  {short(entry['file'])}:{entry['line']}"
        + titled("formula", "" if entry["doc"].startswith(entry["formula"]) else f"  {entry['formula']}")
        + titled("meaning", indented(entry["doc"]))
        + titled("knobs", knobs)
        + titled("data", _data(entry["data"]))
        + titled("members", columns((member["name"], member["about"]) for member in entry["members"]))
    )


def _algorithm(entry: Entry) -> str:
    equation = [f"  {entry['objective']}", symbols.render(entry["symbols"])]
    return (
        f"{_head(entry)}\n  {short(entry['file'])}:{entry['line']}"
        + titled("meaning", _wrapped(entry["about"]))
        + titled("source", _wrapped(entry["source"]))
        + titled("pitfalls", _wrapped(entry["pitfalls"]))
        + titled("equation", "\n\n".join(filter(str.strip, equation)))
        + titled("conventions", convention_card.render(entry["card"]))
        + titled("trainer", f"  {entry['trainer']}")
        + titled("problem", indented(entry["problem"]))
    )


def _hook(entry: Entry) -> str:
    many = "a list of parts" if entry["many"] else "one part"
    return (
        f"{entry['name']}  hook: recipe key `{entry['key']}` ({many}), symbol {entry['symbol']}"
        + titled("meaning", indented(entry["doc"]))
        + titled("data", _data(entry["data"]))
        + titled("parts", columns(folded((part["name"], part["about"]) for part in entry["parts"])))
    )


def _knob(entry: Entry) -> str:
    lines = [(part["address"], part["type"], _default(part), part["about"]) for part in entry["parts"]]
    return f"{entry['name']}  knob\n{columns(lines)}"


def _key(entry: Entry) -> str:
    default = "" if entry["keys"] or entry["default"] == "" else f", default {plain(entry['default'])}"
    return (
        f"{entry['name']}  recipe key: {entry['type']}{default}"
        + titled("meaning", _paragraphs(entry["doc"]))
        + titled("keys", "\n".join(map(_key_below, entry["keys"])))
    )


def _key_below(key: Entry) -> str:
    name = key["address"].rpartition(".")[2]
    default = "" if key["default"] == "" else f", default {plain(key['default'])}"
    facts = f"  {name}: {key['type']}{default}"
    return "\n".join(filter(None, [facts, _wrapped(key["doc"], indent="      ")]))


def _setting(entry: Entry) -> str:
    kind = "not a recipe key" if entry["refused"] else f"recipe key `{entry['address']}`"
    default = "" if entry["default"] in (None, "") else f", default {plain(entry['default'])}"
    return (
        f"{entry['name']}  {kind}, field of {', '.join(entry['classes'])}: {entry['type']}{default}"
        + titled("meaning", _paragraphs(entry["doc"]))
        + titled("in a recipe", _wrapped(entry["refused"]))
        + titled("stands for", columns(map(tuple, entry["equivalents"])))
    )


def _batch_field(entry: Entry) -> str:
    phases = " and ".join(entry["phases"])
    facts = [("shape", entry["shape"]), ("meaning", entry["meaning"]), ("phase", phases)]
    return f"{entry['name']}  field of the batch: a part names it to be given it\n{columns(facts)}"


def _metric(entry: Entry) -> str:
    facts = [(key, entry[key]) for key in ("formula", "meaning", "healthy") if entry[key]]
    return f"{entry['name']}  metric\n{columns(facts)}"


def _term(entry: Entry) -> str:
    lines = [(target["phrase"], target["about"], f"rlm explain {target['address']}") for target in entry["targets"]]
    listed = [f"  {phrase}{about and f': {about}'}\n    {command}" for phrase, about, command in lines]
    return "\n".join([f"{entry['name']}  term of the field, here:", *listed])


def _head(entry: Entry) -> str:
    kind = "algorithm" if entry["kind"] == "algorithm" else f"part for `{entry['key']}` ({entry['hook']})"
    return f"{entry['name']}  {kind}, from {entry['plugin']} ({entry['origin']})"


def _data(data: Sequence[Entry]) -> str:
    return columns((d["name"], d["shape"], d["meaning"], "" if d["required"] else "optional") for d in data)


def _default(knob: Entry) -> str:
    return "required" if knob["required"] else plain(knob["default"])


def _wrapped(text: str, indent: str = "  ") -> str:
    return indented(prose(text, len(indent)), indent)


def _paragraphs(text: str) -> str:
    """Return a docstring or a help text wrapped at the terminal's width, its paragraphs kept."""
    return "\n\n".join(_wrapped(paragraph) for paragraph in text.split("\n\n"))


def _elsewhere(terms: Sequence[tuple[str, str]]) -> str:
    """Return the terms of the field, those of one name on one line."""
    by_name: dict[str, list[str]] = {}
    for term, name in terms:
        by_name.setdefault(name, []).append(term)
    return "\n".join(hanging(", ".join(spellings), f"  {describe(name)}: ") for name, spellings in by_name.items())


_RENDERERS: Mapping[str, Callable[[Entry], str]] = {
    "part": _part,
    "algorithm": _algorithm,
    "hook": _hook,
    "knob": _knob,
    "key": _key,
    "setting": _setting,
    "batch": _batch_field,
    "metric": _metric,
    "term": _term,
}
