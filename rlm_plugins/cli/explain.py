"""Explanations of a name: a part, knob, algorithm, hook, recipe key, batch field, metric, or a term of the field.

Everything here is plain data, ready for ``--json``; :mod:`rlm_plugins.cli.explain_report` renders it as text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rlm_plugins import batch, glossary, metrics
from rlm_plugins.cli import explain_parts
from rlm_plugins.cli.config_fields import config_fields
from rlm_plugins.cli.recipe_keys import find_keys, recipe_keys
from rlm_plugins.errors import RlmError
from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry import Registry

Entry = dict[str, Any]


def explain(name: str, registry: Registry) -> list[Entry]:
    """Return an entry for everything called `name`, else for everything that the field calls so.

    Args:
        name: ``clip``, ``builtin/clip``, ``penalties/entropy``, ``clip.epsilon``, ``epsilon``, ``rlm_advantages``,
            ``advantage``, ``speed.padding_free``, ``old_logp``, ``reward_std``, ``learning_rate``, ``kl_coef``. A kind
            in front selects: ``batch:entropy``, ``metric:entropy``.
        registry: Supplies the parts.

    Returns:
        Entries with ``kind`` (part, algorithm, knob, hook, key, batch, metric, setting or term), ``name``, ``address``
        (the name that is unique) and ``elsewhere``; the last are terms of the field, each with the address it stands
        for. The other keys depend on the kind.

    Raises:
        RlmError: The name is unknown.
    """
    entries = find(name, registry) or find(glossary.normalized(name), registry)
    if targets := glossary.translate(name):
        only = find(targets[0], registry) if len(targets) == 1 and not entries else []
        entries += [_term(name, targets, registry), *only]
    if not entries:
        similar = glossary.suggest(name, known(registry)) or "see `rlm plugins`"
        hint = f"{similar} (a part of your own file needs `--load FILE.py`)"
        raise RlmError(f"unknown name '{name}'", hint=hint)
    for entry in entries:
        entry["elsewhere"] = glossary.terms_for(entry["address"]) if entry["kind"] != "term" else []
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
    """Return every name that can be explained. Imports TRL and PEFT."""
    hooks = [name for hook in HOOKS for name in (hook, HOOKS[hook].key)]
    keys = [name for path in recipe_keys() for name in (path, path.rpartition(".")[2])]
    fields = [name for path, field in config_fields(registry).items() for name in (path, field["name"])]
    logged = [metric.name for metric in metrics.METRICS]
    parts = explain_parts.known_parts(registry)
    data = [*batch.MEANINGS, *batch.SAMPLE, *batch.PER_COMPLETION]
    return list(dict.fromkeys([*parts, *hooks, *keys, *data, *logged, *fields, *glossary.TERMS]))


def _is_no_setting(entry: Entry) -> bool:
    """Return True for a part, an algorithm, a hook or a tensor: importing the config classes for it would be slow."""
    is_tensor = entry["kind"] == "batch" and entry["shape"] != "scalar"
    return is_tensor or entry["kind"] in ("part", "algorithm", "hook")


def _hooks(name: str, registry: Registry) -> list[Entry]:
    return [explain_parts.hook_entry(hook, registry) for hook in HOOKS if name in _names_of_hook(hook)]


def _names_of_hook(hook: str) -> tuple[str, ...]:
    """Return the name, the recipe key and, if it stands for one hook only, the symbol of a hook."""
    symbol = HOOKS[hook].symbol
    unique = sum(other.symbol == symbol for other in HOOKS.values()) == 1
    return (hook, HOOKS[hook].key, *([symbol] if unique else []))


def _keys(name: str, registry: Registry) -> list[Entry]:
    return [dict(key) for key in find_keys(name)]


def _batch_fields(name: str, registry: Registry) -> list[Entry]:
    phases = [phase for phase in (batch.SCORING, batch.LOSS) if name in batch.names(phase)]
    of_rewards = {**batch.SAMPLE, **batch.PER_COMPLETION}
    if name in batch.MEANINGS:
        facts = {"shape": batch.SHAPES[name] or "scalar", "meaning": batch.MEANINGS[name], "phases": phases}
    elif name in of_rewards:
        facts = {"shape": "B", "meaning": of_rewards[name], "phases": ["rewards"]}
    else:
        return []
    return [{"kind": "batch", "name": name, "address": f"batch:{name}", **facts}]


def _metrics(name: str, registry: Registry) -> list[Entry]:
    exact = (metric for metric in metrics.METRICS if metric.name == name)
    metric = next(exact, None) or metrics.find(name)
    if metric is None:
        return []
    return [{"kind": "metric", **asdict(metric), "name": name, "address": f"metric:{metric.name}"}]


def _term(name: str, targets: tuple[str, ...], registry: Registry) -> Entry:
    """Return the entry of a term of the field: the names it stands for, each with one line."""
    lines = []
    for target in targets:
        entries = find(target, registry)
        about = explain_parts.one_line(entries[0]) if entries else ""
        lines.append({"address": target, "phrase": glossary.describe(target), "about": about})
    return {"kind": "term", "name": name, "address": f"term:{glossary.normalized(name)}", "targets": lines}


_LOOKUPS: tuple[Callable[[str, Registry], list[Entry]], ...] = (
    explain_parts.find_parts,
    _hooks,
    _keys,
    _batch_fields,
    explain_parts.find_knobs,
    _metrics,
)
"""In the order of their entries in an explanation."""
