"""Explanations of a name: a part, knob, algorithm, hook, recipe key, batch field, metric, finding or term.

Everything here is plain data, ready for ``--json``; :mod:`rlm_lab.explain_text` renders it as text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlm_lab import convention_card, metrics
from rlm_lab.recipe_keys import config_fields, find_keys, knobs, recipe_keys
from rlm_lab.rules import RULES
from rlm_plugins import hookspecs
from rlm_plugins.equation import batch, glossary
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.equation.knobs import as_recipe_value
from rlm_plugins.errors import RlmError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.contract import line_of
from rlm_plugins.registry.part import Part
from rlm_plugins.registry.protocols import capabilities
from rlm_plugins.report.objective_text import (
    Slots,
    about,
    call,
    first_sentence,
    formula,
    legend,
    meaning,
    objective,
    parts_of,
    slots_of,
)
from rlm_plugins.specs import Algorithm

Entry = dict[str, Any]


def explain(name: str, registry: Registry) -> list[Entry]:
    """Return an entry for everything called `name`, else for everything that the field calls so.

    Args:
        name: ``clip``, ``builtin/clip``, ``penalties/entropy``, ``clip.epsilon``, ``epsilon``, ``rlm_advantages``,
            ``advantage``, ``speed.padding_free``, ``old_logp``, ``reward_std``, ``learning_rate``, ``kl_coef``. A kind
            in front selects: ``batch:entropy``, ``metric:entropy``.
        registry: Supplies the parts.

    Returns:
        Entries with ``kind`` (part, algorithm, knob, hook, key, batch, metric, finding, setting or term), ``name``,
        ``address`` (the name that is unique) and ``elsewhere``; the last are terms of the field, each with the
        address it stands for. The other keys depend on the kind.

    Raises:
        RlmError: The name is unknown.
    """
    entries = find(name, registry) or find(glossary.normalized(name), registry)
    if targets := glossary.translate(name):
        only = find(targets[0], registry) if len(targets) == 1 and not entries else []
        entries += [_term(name, targets, registry), *only]
    if not entries:
        similar = glossary.suggest(name, known(registry)) or "`rlm explain` lists the names"
        hint = f"{similar} (a part of your own file needs `--load FILE.py`)"
        if Path(name).exists() or name.endswith((".yaml", ".yml")):
            hint = "`rlm check RECIPE` and `rlm why RUN` are about a recipe or run"
        raise RlmError(f"unknown name '{name}'", hint=hint)
    for entry in entries:
        entry["elsewhere"] = _terms_for(entry["address"]) if entry["kind"] != "term" else []
    return entries


def find(name: str, registry: Registry) -> list[Entry]:
    """Return the entries of exactly that name, or of that address."""
    kind, _, bare = name.rpartition(":")
    entries = [entry for lookup in _LOOKUPS for entry in lookup(bare, registry)]
    if kind in ("", "setting") and not any(map(_is_no_setting, entries)):
        fields = config_fields(registry)
        entries += [fields[path] for path in fields if bare in (path, fields[path]["name"])]
    return [entry for entry in entries if kind in ("", entry["kind"])]


def known(registry: Registry) -> list[str]:
    """Return every name that can be explained."""
    parts = [name for part in registry for name in _names(part)]
    of_parts = [knob for part in registry for knob in _knob_names(part)]
    hooks = [name for hook in HOOKS for name in (hook, HOOKS[hook].key)]
    keys = [name for path in recipe_keys() for name in (path, path.rpartition(".")[2])]
    fields = [name for path, field in config_fields(registry).items() for name in (path, field["name"])]
    data = [*batch.MEANINGS, *batch.SAMPLE, *batch.PER_COMPLETION]
    logged = [*(metric.name for metric in metrics.METRICS), *(rule.name for rule in RULES)]
    return list(dict.fromkeys([*parts, *of_parts, *hooks, *keys, *data, *logged, *fields, *glossary.TERMS]))


def _is_no_setting(entry: Entry) -> bool:
    """Return True for an entry that is no setting: importing the config classes for it would be slow."""
    is_tensor = entry["kind"] == "batch" and entry["shape"] != "scalar"
    return is_tensor or entry["kind"] in ("part", "algorithm", "hook", "finding")


def one_line(entry: Entry) -> str:
    """Return one line on an entry of any kind."""
    if entry["kind"] == "knob":
        return " / ".join(part["about"] for part in entry["parts"])
    return first_sentence(entry.get("about") or entry.get("meaning") or entry.get("doc", ""))


# ---- parts, knobs, algorithms, hooks


def _find_parts(name: str, registry: Registry) -> list[Entry]:
    return [part_entry(part, registry) for part in registry if name in _names(part)]


def _find_knobs(name: str, registry: Registry) -> list[Entry]:
    """Return the knob of that name (``epsilon``, ``clip.epsilon``) with every part that has it."""
    owner, _, knob = name.rpartition(".")
    owners = (part for part in registry if knob in _knob_names(part) and (not owner or owner in _names(part)))
    pairs = [(part, described) for part in owners for described in knobs(part)]
    lines = [{**_address(part, knob), **described} for part, described in pairs if described["name"] == knob]
    address = lines[0]["address"] if len(lines) == 1 else name
    return [{"kind": "knob", "name": knob, "address": address, "parts": lines}] if lines else []


def _find_hooks(name: str, registry: Registry) -> list[Entry]:
    """Return the hook of that name, recipe key, or symbol that stands for one hook only."""
    symbols = [hook.symbol for hook in HOOKS.values()]
    unique = [name] if symbols.count(name) == 1 else []
    return [_hook(key, registry) for key, hook in HOOKS.items() if name in (key, hook.key) or hook.symbol in unique]


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
        "file": part.file,
        "line": line_of(part.target),
        **(_algorithm(part, registry) if is_algorithm else _part(part)),
    }


def _names(part: Part) -> list[str]:
    """Return the names of a part: bare, with its plugin, and each with its hook or recipe key in front."""
    if part.hook == "rlm_settings":  # a field of the trainer's config
        return []
    prefixes = ("", f"{part.hook}/", f"{HOOKS[part.hook].key}/")
    return [f"{prefix}{name}" for prefix in prefixes for name in (part.name, part.full_name)]


def _knob_names(part: Part) -> list[str]:
    return [] if part.hook in ("rlm_algorithms", "rlm_settings") else list(part.knobs.model_fields)


def _address(part: Part, knob: str = "") -> Entry:
    """Return the unique name of a part, or of a knob of it, and one line on the part."""
    if part.hook == "rlm_sections":  # a key of a recipe
        return {"address": f"{part.name}{knob and f'.{knob}'}", "about": about(part)}
    name = part.name if part.plugin == "builtin" else part.full_name
    return {"address": f"{HOOKS[part.hook].key}/{name}{knob and f'.{knob}'}", "about": about(part)}


def _part(part: Part) -> Entry:
    data = [(name, True) for name in part.required_data] + [(name, False) for name in part.optional_data]
    return {
        "about": about(part),
        "formula": formula(part),
        "doc": inspect.getdoc(part.target) or "",
        "knobs": knobs(part),
        "members": [{"name": name, "about": sentence} for name, sentence in capabilities(part)],
        "data": [_datum(name, part.hook, required) for name, required in data],
    }


def _algorithm(part: Part, registry: Registry) -> Entry:
    algorithm: Algorithm = part.target
    entry = {name: getattr(algorithm, name) for name in ("about", "source", "pitfalls", "trainer", "family")}
    entry |= {"slots": algorithm.slots(), "objective": "", "legend": [], "symbols": [], "card": {}, "problem": ""}
    try:
        slots = slots_of(algorithm, registry)
    except RlmError as error:
        return {**entry, "problem": str(error)}
    if slots["aggregator"]:
        entry |= {"objective": objective(slots), "legend": legend(slots)}
    return {**entry, "symbols": _symbols(slots, algorithm), "card": convention_card.card(part, registry)}


def _symbols(slots: Slots, algorithm: Algorithm) -> list[Entry]:
    """Return an entry for each part of an equation, from the loss down."""
    return [
        {
            "symbol": symbol,
            "key": HOOKS[bound.part.hook].key,
            "name": bound.part.name,
            "full_name": bound.part.full_name,
            "knobs": {name: as_recipe_value(value) for name, value in bound.knobs.items()},
            "call": call(bound),
            "formula": meaning(bound),
            "file": bound.part.file,
            "line": line_of(bound.part.target),
            "in_source": algorithm.names.get(bound.part.name, algorithm.names.get(HOOKS[bound.part.hook].key, "")),
        }
        for symbol, bound in parts_of(slots)
    ]


def _hook(hook: str, registry: Registry) -> Entry:
    """Return the entry of a hook: its purpose, the data its parts may name, and its parts."""
    spec = HOOKS[hook]
    if spec.data is None:
        names = [*batch.SAMPLE, *batch.PER_COMPLETION]
    else:
        names = batch.names(spec.data) if isinstance(spec.data, str) else list(spec.data)
    return {
        "kind": "hook",
        "name": hook,
        "key": spec.key,
        "address": spec.key,
        "symbol": spec.symbol,
        "many": spec.many,
        "doc": inspect.getdoc(getattr(hookspecs, hook)) or "",
        "data": [_datum(name, hook, required=True) for name in names],
        "parts": [{"name": n, "about": about(registry.find(hook, n))} for n in registry.names(hook)],
    }


def _datum(name: str, hook: str, required: bool) -> Entry:
    shape, meaning = "", ""
    if hook == "rlm_rewards":
        meaning = {**batch.SAMPLE, **batch.PER_COMPLETION}.get(name, "a column of the data set")
    if HOOKS[hook].data in (batch.SCORING, batch.LOSS):
        shape, meaning = batch.SHAPES[name] or "scalar", batch.MEANINGS[name]
    return {"name": name, "required": required, "shape": shape, "meaning": meaning}


# ---- other names


def _find_keys(name: str, registry: Registry) -> list[Entry]:
    return [dict(key) for key in find_keys(name)]


def _find_batch_fields(name: str, registry: Registry) -> list[Entry]:
    phases = [phase for phase in (batch.SCORING, batch.LOSS) if name in batch.names(phase)]
    of_rewards = {**batch.SAMPLE, **batch.PER_COMPLETION}
    if name in batch.MEANINGS:
        facts = {"shape": batch.SHAPES[name] or "scalar", "meaning": batch.MEANINGS[name], "phases": phases}
    elif name in of_rewards:
        facts = {"shape": "B", "meaning": of_rewards[name], "phases": ["rewards"]}
    else:
        return []
    return [{"kind": "batch", "name": name, "address": f"batch:{name}", **facts}]


def _find_metrics(name: str, registry: Registry) -> list[Entry]:
    exact = (metric for metric in metrics.METRICS if metric.name == name)
    metric = next(exact, None) or metrics.find(name)
    if metric is None:
        return []
    return [{"kind": "metric", **asdict(metric), "name": name, "address": f"metric:{metric.name}"}]


def _find_findings(name: str, registry: Registry) -> list[Entry]:
    rules = [rule.described() for rule in RULES if rule.name == name]
    return [{"kind": "finding", "address": f"finding:{name}", "about": rule["evidence"], **rule} for rule in rules]


def _term(name: str, targets: tuple[str, ...], registry: Registry) -> Entry:
    """Return the entry of a term of the field: the names it stands for, each with one line."""
    lines = []
    for target in targets:
        entries = find(target, registry)
        line = one_line(entries[0]) if entries else ""
        lines.append({"address": target, "phrase": glossary.describe(target), "about": line})
    return {"kind": "term", "name": name, "address": f"term:{glossary.normalized(name)}", "targets": lines}


def _terms_for(name: str) -> list[tuple[str, str]]:
    """Return the terms that stand for a name or for a knob or key below it, each with the name it stands for."""
    pairs = [(term, target) for term, targets in glossary.TERMS.items() for target in targets]
    return [(term, target) for term, target in pairs if target == name or target.startswith(f"{name}.")]


_LOOKUPS: tuple[Callable[[str, Registry], list[Entry]], ...] = (
    _find_parts,
    _find_hooks,
    _find_keys,
    _find_batch_fields,
    _find_knobs,
    _find_metrics,
    _find_findings,
)
"""In the order of their entries in an explanation."""
