"""Entries of ``rlm explain`` for what the registry holds: parts, their knobs, algorithms and hooks."""

from __future__ import annotations

import inspect
from typing import Any

from rlm_plugins import batch, hookspecs
from rlm_plugins.cli import convention_card, symbols
from rlm_plugins.cli.knob_table import knobs
from rlm_plugins.errors import RlmError
from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.registry.protocols import capabilities
from rlm_plugins.registry.signature import line_of
from rlm_plugins.report import objective_text
from rlm_plugins.report.part_text import about, first_sentence

Entry = dict[str, Any]


def find_parts(name: str, registry: Registry) -> list[Entry]:
    """Return the parts and algorithms of that name."""
    return [part_entry(part, registry) for part in registry if name in _names(part)]


def find_knobs(name: str, registry: Registry) -> list[Entry]:
    """Return the knob of that name (``epsilon``, ``clip.epsilon``) with every part that has it."""
    owner, _, knob = name.rpartition(".")
    owners = [part for part in registry if part.hook != "rlm_algorithms" and (not owner or owner in _names(part))]
    pairs = [(part, described) for part in owners if knob in _knob_names(part) for described in knobs(part)]
    lines = [{**_address(part, knob), **described} for part, described in pairs if described["name"] == knob]
    address = lines[0]["address"] if len(lines) == 1 else name
    return [{"kind": "knob", "name": knob, "address": address, "parts": lines}] if lines else []


def known_parts(registry: Registry) -> list[str]:
    """Return every name of a part, an algorithm or a knob."""
    names = [name for part in registry for name in _names(part)]
    return [*names, *(knob for part in registry if part.hook != "rlm_algorithms" for knob in _knob_names(part))]


def part_entry(part: Part, registry: Registry) -> Entry:
    """Return the entry of a part or an algorithm."""
    is_algorithm = part.hook == "rlm_algorithms"
    return {
        "kind": "algorithm" if is_algorithm else "part",
        "name": part.name,
        "full_name": part.full_name,
        "address": _address(part)["address"],
        "hook": part.hook,
        "key": HOOKS[part.hook].key,
        "plugin": part.plugin,
        "origin": registry.plugins[part.plugin].origin,
        **(_algorithm(part, registry) if is_algorithm else _part(part)),
    }


def hook_entry(hook: str, registry: Registry) -> Entry:
    """Return the entry of a hook: its purpose, the data its parts may name, and its parts."""
    spec = HOOKS[hook]
    return {
        "kind": "hook",
        "name": hook,
        "key": spec.key,
        "address": spec.key,
        "symbol": spec.symbol,
        "many": spec.many,
        "doc": inspect.getdoc(getattr(hookspecs, hook)) or "",
        "data": [_datum(name, hook, required=True) for name in _data_names(hook)],
        "parts": [{"name": n, "about": about(registry.find(hook, n))} for n in registry.names(hook)],
    }


def one_line(entry: Entry) -> str:
    """Return one line on an entry of any kind."""
    if entry["kind"] == "knob":
        return " / ".join(part["about"] for part in entry["parts"])
    text = entry.get("about") or entry.get("meaning") or entry.get("doc", "")
    return first_sentence(text)


def _names(part: Part) -> list[str]:
    """Return the names of a part: bare, with its plugin, and each with its hook or recipe key in front."""
    prefixes = ("", f"{part.hook}/", f"{HOOKS[part.hook].key}/")
    return [f"{prefix}{name}" for prefix in prefixes for name in (part.name, part.full_name)]


def _address(part: Part, knob: str = "") -> Entry:
    """Return the unique name of a part, or of a knob of it, and one line on the part."""
    name = part.name if part.plugin == "builtin" else part.full_name
    return {"address": f"{HOOKS[part.hook].key}/{name}{knob and f'.{knob}'}", "about": about(part)}


def _knob_names(part: Part) -> list[str]:
    return list(part.knobs.model_fields)


def _part(part: Part) -> Entry:
    data = [(name, True) for name in part.required_data] + [(name, False) for name in part.optional_data]
    return {
        "file": part.file,
        "line": line_of(part.target),
        "about": about(part),
        "formula": objective_text.formula(part),
        "doc": inspect.getdoc(part.target) or "",
        "knobs": knobs(part),
        "members": [{"name": name, "about": sentence} for name, sentence in capabilities(part)],
        "data": [_datum(name, part.hook, required) for name, required in data],
    }


def _algorithm(part: Part, registry: Registry) -> Entry:
    algorithm = part.target
    entry = {
        "file": part.file,
        "line": line_of(algorithm),
        **{name: getattr(algorithm, name) for name in ("about", "source", "pitfalls", "trainer", "family")},
        "slots": algorithm.slots(),
        "objective": "",
        "legend": [],
        "symbols": [],
        "card": {},
        "problem": "",
    }
    try:
        slots = objective_text.slots_of(algorithm, registry)
    except RlmError as error:
        return {**entry, "problem": str(error)}
    if slots["aggregator"]:
        entry |= {"objective": objective_text.objective(slots), "legend": objective_text.legend(slots)}
    return {
        **entry,
        "symbols": symbols.symbols(slots, algorithm.names),
        "card": convention_card.card(part, registry),
    }


def _datum(name: str, hook: str, required: bool) -> Entry:
    shape, meaning = "", ""
    if hook == "rlm_rewards":
        meaning = {**batch.SAMPLE, **batch.PER_COMPLETION}.get(name, "a column of the data set")
    if HOOKS[hook].data in (batch.SCORING, batch.LOSS):
        shape, meaning = batch.SHAPES[name] or "scalar", batch.MEANINGS[name]
    return {"name": name, "required": required, "shape": shape, "meaning": meaning}


def _data_names(hook: str) -> list[str]:
    data = HOOKS[hook].data
    if data is None:
        return [*batch.SAMPLE, *batch.PER_COMPLETION]
    return batch.names(data) if isinstance(data, str) else list(data)
