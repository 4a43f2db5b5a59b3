"""The keys of a recipe, with the sentence that its schema has for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from rlm_plugins.cli.knob_table import type_in_words
from rlm_plugins.hooks import HOOKS
from rlm_plugins.recipe import sections

Entry = dict[str, Any]
Schema = Mapping[str, Any]

HOOK_KEYS = frozenset(hook.key for hook in HOOKS.values())
"""The keys that name parts: their hook explains them."""


@cache
def recipe_keys() -> dict[str, Entry]:
    """Return every key of a recipe by its path.

    Returns:
        Path (``speed``, ``speed.padding_free``, ``penalties.beta``) → ``name``, ``address`` (the path), ``type``,
        ``default``, ``doc``, and ``keys``: the entries below it. ``name`` of a part and the keys of `stages`, which
        are those of a recipe, are left out. A slot of an algorithm stands under its own key.

    >>> "penalties.beta" in recipe_keys(), recipe_keys()["evaluation.every"]["default"]
    (True, 0)
    """
    schema = sections.Document.model_json_schema()
    keys: dict[str, Entry] = {}
    for path, key, defs in _walk(schema, schema["$defs"]):
        keys.setdefault(path, _entry(path, key, defs))
    for path, entry in keys.items():
        entry["keys"] = [keys[inner] for inner in keys if inner.rpartition(".")[0] == path]
    return keys


def find_keys(name: str) -> list[Entry]:
    """Return the keys with that path, else those with that last component; without the keys that name parts.

    >>> [key["address"] for key in find_keys("warmup_steps")]
    ['critic.warmup_steps']
    """
    keys = {path: key for path, key in recipe_keys().items() if path not in HOOK_KEYS}
    return [keys[name]] if name in keys else [key for path, key in keys.items() if path.endswith(f".{name}")]


def _walk(section: Schema, defs: Schema, prefix: str = "") -> Iterator[tuple[str, Schema, Schema]]:
    """Yield path, schema and definitions of each key of a section, from the outside in."""
    for name, key in section.get("properties", {}).items():
        if prefix and name == "name":
            continue
        path = f"{prefix}{name}"
        yield path, key, defs
        if name == "stages":
            continue
        below = "" if name == "algorithm" else f"{path}."
        for definition in _references(key):
            yield from _walk(defs[definition], defs, below)


def _entry(path: str, key: Schema, defs: Schema) -> Entry:
    sections_of_key = [defs[name].get("description", "") for name in _references(key)]
    return {
        "kind": "key",
        "name": path,
        "address": path,
        "type": type_in_words(dict(key), dict(defs)),
        "default": key.get("default"),
        "doc": key.get("description") or next(iter(sections_of_key), ""),
        "keys": [],
    }


def _references(schema: Any) -> list[str]:
    """Return the names of the definitions that a schema refers to, itself or in its branches and items."""
    if isinstance(schema, list):
        return [name for inner in schema for name in _references(inner)]
    if not isinstance(schema, Mapping):
        return []
    if "$ref" in schema:
        return [schema["$ref"].rpartition("/")[2]]
    below = (schema.get(branch) for branch in ("anyOf", "oneOf", "allOf", "items", "additionalProperties"))
    return [name for inner in below for name in _references(inner)]
