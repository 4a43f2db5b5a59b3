"""What is known about a name: of a part, a row of the algorithm table, a hook, a recipe key, a logged number.

Everything here is plain data, ready for ``--json``; :mod:`rlm_plugins.cli.report` turns it into text.
"""

from __future__ import annotations

import inspect
from dataclasses import asdict
from typing import Any

from rlm_plugins import batch, hookspecs, metrics
from rlm_plugins.cli import convention_card as cards
from rlm_plugins.cli import objective_text as formula
from rlm_plugins.cli import symbols
from rlm_plugins.cli.knob_table import knobs, type_in_words
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.recipe import sections as grammar
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.registry.signature import line_of

Entry = dict[str, Any]


def explain(name: str, registry: Registry) -> list[Entry]:
    """Everything that is called `name`.

    Args:
        name: ``clip``, ``builtin/clip``, ``rlm_penalties/entropy``, ``penalties/entropy``, ``rlm_advantages``,
            ``advantage``, ``evaluation``, ``reward_std``.
        registry: Where parts are found.

    Returns:
        One entry each; its ``kind`` is part, row, hook, key or metric, and says which other keys it has.

    Raises:
        RlmError: Nothing is called so.
    """
    found = [part_entry(part, registry) for part in registry if name in _names(part)]
    found += [hook_entry(hook, registry) for hook in HOOKS if name in (hook, HOOKS[hook].key)]
    found += [key_entry(name)] if name in _keys() else []
    if metric := metrics.find(name):
        found.append({"kind": "metric", **asdict(metric), "name": name})
    if not found:
        raise RlmError(f"nothing is called '{name}'", hint=nearest(name, known(registry)) or "see `rlm plugins`")
    return found


def known(registry: Registry) -> list[str]:
    """Every name that can be explained."""
    hooks = [name for hook in HOOKS for name in (hook, HOOKS[hook].key)]
    logged = [metric.name for metric in metrics.METRICS]
    return [*(name for part in registry for name in _names(part)), *hooks, *_keys(), *logged]


def part_entry(part: Part, registry: Registry) -> Entry:
    """A part, or a row of the table."""
    is_row = part.hook == "rlm_algorithms"
    return {
        "kind": "row" if is_row else "part",
        "name": part.name,
        "full_name": part.full_name,
        "hook": part.hook,
        "key": HOOKS[part.hook].key,
        "plugin": part.plugin,
        "origin": registry.plugins[part.plugin].origin,
        **(_row(part, registry) if is_row else _part(part)),
    }


def about(part: Part) -> str:
    """One line: what a part does, what a row is."""
    return part.target.about if part.hook == "rlm_algorithms" else formula.summary(part.target)


def hook_entry(hook: str, registry: Registry) -> Entry:
    """A seam: what it is for, what its parts may ask for, who is there."""
    seam = HOOKS[hook]
    return {
        "kind": "hook",
        "name": hook,
        "key": seam.key,
        "symbol": seam.symbol,
        "many": seam.many,
        "doc": inspect.getdoc(getattr(hookspecs, hook)) or "",
        "data": [_datum(name, hook, required=True) for name in _room(hook)],
        "parts": [{"name": n, "about": about(registry.find(hook, n))} for n in registry.names(hook)],
    }


def key_entry(name: str) -> Entry:
    """A key of a recipe that is no hook, and the keys below it."""
    schema = grammar.Document.model_json_schema()
    field, defs = schema["properties"][name], schema["$defs"]
    model = defs.get(next((x["$ref"].rpartition("/")[2] for x in field.get("anyOf", ()) if "$ref" in x), ""), {})
    below = [
        {"name": key, "type": type_in_words(inner, defs), "default": inner.get("default")}
        for key, inner in model.get("properties", {}).items()
    ]
    doc = model.get("description", "")
    return {"kind": "key", "name": name, "type": type_in_words(field, defs), "doc": doc, "keys": below}


def _keys() -> list[str]:
    """The keys of a recipe that name no parts."""
    return [key for key in grammar.Document.model_fields if key not in {hook.key for hook in HOOKS.values()}]


def _names(part: Part) -> list[str]:
    """Everything a part may be called: bare, with its plugin, with its hook or recipe key in front."""
    prefixes = ("", f"{part.hook}/", f"{HOOKS[part.hook].key}/")
    return [f"{prefix}{name}" for prefix in prefixes for name in (part.name, part.full_name)]


def _part(part: Part) -> Entry:
    named = [(name, True) for name in part.needs] + [(name, False) for name in part.welcomes]
    return {
        "file": part.file,
        "line": line_of(part.target),
        "about": about(part),
        "formula": formula.formula(part),
        "doc": inspect.getdoc(part.target) or "",
        "knobs": knobs(part),
        "data": [_datum(name, part.hook, required) for name, required in named],
    }


def _row(part: Part, registry: Registry) -> Entry:
    row = part.target
    entry = {
        "file": part.file,
        "line": line_of(row),
        **{name: getattr(row, name) for name in ("about", "source", "pitfalls", "trainer", "family")},
        "slots": row.slots(),
        "objective": "",
        "legend": [],
        "symbols": [],
        "card": {},
        "problem": "",
    }
    try:
        slots = formula.slots_of(row, registry)
    except RlmError as error:
        return {**entry, "problem": str(error)}
    lines = {"objective": formula.objective(slots), "legend": formula.legend(slots)} if slots["aggregator"] else {}
    said = symbols.symbols(slots, row.names)
    return {**entry, **lines, "symbols": said, "card": cards.card(part, registry)}


def _datum(name: str, hook: str, required: bool) -> Entry:
    shape, meaning = (
        "",
        {**batch.SAMPLE, **batch.PER_COMPLETION}.get(name, "a column of the data set") if hook == "rlm_rewards" else "",
    )
    if HOOKS[hook].data in (batch.SCORING, batch.LOSS):
        shape, meaning = batch.SHAPES[name] or "scalar", batch.MEANINGS[name]
    return {"name": name, "required": required, "shape": shape, "meaning": meaning}


def _room(hook: str) -> list[str]:
    data = HOOKS[hook].data
    if data is None:
        return [*batch.SAMPLE, *batch.PER_COMPLETION]
    return batch.names(data) if isinstance(data, str) else list(data)
