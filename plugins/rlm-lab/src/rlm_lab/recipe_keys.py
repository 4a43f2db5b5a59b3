"""The keys of a recipe, the fields of the config classes behind them, and the knobs of parts, as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pydantic

from rlm_lab.schema import config_schema, schema_of
from rlm_lab.stored import stored
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.recipe import sections
from rlm_plugins.recipe.trl_fields import ALWAYS, CHOICES, KNOBS, RLOO, decided, slot_of
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part

Entry = dict[str, Any]
Schema = Mapping[str, Any]

HOOK_KEYS = frozenset(hook.key for hook in HOOKS.values())
"""The keys that name parts: their hook explains them."""
_TYPE_NAMES = {"number": "number", "integer": "whole number", "string": "text", "boolean": "true or false"}
_TYPE_NAMES |= {"object": "mapping", "null": "null"}
_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
MANY = 6
"""Keys of a mapping up to which all are listed; of a larger one only the required keys."""


def equivalents(field: str) -> list[tuple[str, str]]:
    """Return the equivalent in a recipe for each value of a field of TRL: rows for `rlm explain`.

    >>> equivalents("importance_sampling_level")[1]
    ('GRPOConfig.importance_sampling_level: sequence', 'importance: sequence')
    """
    rows = []
    for choice in (choice for choice in CHOICES if choice.field == field):
        for value, slots in choice.parts.items():
            parts = ", ".join(f"{slot}: {part['name']}" for slot, part in slots.items())
            rows.append((f"{choice.config}.{field}: {value}", parts or "no part"))
    for row in (row for row in KNOBS if row.field == field):
        absent = "" if row.absent is ALWAYS else f"; {row.absent}: no such part"
        offset = f" (ours is TRL's {row.offset:+g})" if row.offset else ""
        rows.append((f"{row.config}.{field}", f"{row.address}{offset}{absent}"))
    return rows


def type_in_words(schema: Schema, defs: Schema | None = None) -> str:
    """Return a JSON Schema as a phrase; `defs` holds its definitions.

    >>> type_in_words({"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]})
    'number ≥ 0 or null'
    >>> type_in_words({"enum": ["k1", "k2"]}), type_in_words({"type": "array", "items": {"type": "string"}})
    ("'k1' or 'k2'", 'list of text')
    """
    if "$ref" in schema:
        target = (defs or {}).get(schema["$ref"].rpartition("/")[2], {})
        required, properties = target.get("required", []), target.get("properties", {})
        keys = [*required, "…"] if required and len(properties) > MANY else properties
        return f"{{{', '.join(keys)}}}"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(type_in_words(choice, defs) for choice in choices)
    if "enum" in schema or "const" in schema:
        return " or ".join(repr(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {type_in_words(schema.get('items', {}), defs)}"
    limits = [f" {sign} {schema[key]:g}" for key, sign in _LIMITS.items() if key in schema]
    return _TYPE_NAMES.get(schema.get("type", ""), "anything") + "".join(limits)


# ---- knobs of a part


def knobs(part: Part) -> list[Entry]:
    """Return name, type, JSON Schema, whether it is required, and default of every knob."""
    try:
        schema = part.knobs.model_json_schema(mode="serialization")
    except pydantic.errors.PydanticInvalidForJsonSchema:
        schema = {}
    schemas, defs = schema.get("properties", {}), schema.get("$defs", {})
    return [_knob(name, field, schemas.get(name, {}), defs) for name, field in part.knobs.model_fields.items()]


def _knob(name: str, field: Any, schema: Schema, defs: Schema) -> Entry:
    plain = {key: value for key, value in schema.items() if key not in ("title", "default")}
    return {
        "name": name,
        "type": type_in_words(plain, defs) if schema else getattr(field.annotation, "__name__", str(field.annotation)),
        "schema": plain,
        "required": field.is_required(),
        "default": schema.get("default"),
    }


# ---- keys of a recipe


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
    for path, key in _walk(schema, schema["$defs"]):
        keys.setdefault(path, _key(path, key, schema["$defs"]))
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


def _walk(section: Schema, defs: Schema, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield path and schema of each key of a section, from the outside in."""
    for name, key in section.get("properties", {}).items():
        if prefix and name == "name":
            continue
        yield f"{prefix}{name}", key
        for definition in _references(key) if name != "stages" else ():
            yield from _walk(defs[definition], defs, "" if name == "algorithm" else f"{prefix}{name}.")


def _key(path: str, key: Schema, defs: Schema) -> Entry:
    sections_of_key = [defs[name].get("description", "") for name in _references(key)]
    return {
        "kind": "key",
        "name": path,
        "address": path,
        "type": type_in_words(key, defs),
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


# ---- fields under `trainer:` and `lora:`


def config_fields(registry: Registry) -> dict[str, Entry]:
    """Return every field that a recipe may set under ``trainer:`` or ``lora:``; the first call imports TRL and PEFT.

    Args:
        registry: Supplies the trainers, each with its config class, and the settings of packages.

    Returns:
        Path (``trainer.learning_rate``, ``lora.r``) → ``name``, ``address`` (the path), ``type``, ``default``, ``doc``,
        ``classes`` (the config classes with that field), ``refused``: why a recipe cannot set it, or empty, and
        ``equivalents``: values of TRL's field, each with the part or knob of the algorithm that it stands for.
    """
    fields: dict[str, Entry] = stored("fields of configs", registry, lambda: _config_fields(registry))
    return fields


def _config_fields(registry: Registry) -> dict[str, Entry]:
    import trl

    fields: dict[str, Entry] = {}
    for section, config_class, refused in _config_classes(registry):
        title = _title(config_class)
        for name, schema in _properties(config_class).items():
            path = f"{section}.{name}"
            entry = fields.setdefault(path, _field(path, schema, refused.get(name, "")))
            if title not in entry["classes"]:
                entry["classes"].append(title)
    for name, schema in _properties(trl.RLOOConfig).items():
        if name in decided(RLOO):
            path = f"trainer.{name}"
            entry = fields.setdefault(path, _field(path, schema, f"say `{slot_of(RLOO, name)}`"))
            entry["classes"].append(_title(trl.RLOOConfig))
    for part in (part for part in registry if part.hook == "rlm_settings"):
        path, setting = f"trainer.{part.name}", part.target
        schema = {**schema_of(setting.annotation), "description": setting.about}
        fields[path] = {**_field(path, schema, ""), "classes": [f"the plugin '{part.plugin}'"]}
    return fields


def _config_classes(registry: Registry) -> Iterator[tuple[str, type, dict[str, str]]]:
    for part in registry:
        if part.hook == "rlm_trainers":
            trainer: Any = part.bind({}).target
            yield "trainer", trainer.config_class(), dict(getattr(trainer, "refused", {}))
    import peft

    yield "lora", peft.LoraConfig, {}


@cache
def _properties(config_class: type) -> Entry:
    properties: Entry = config_schema(config_class, {})["properties"]
    return properties


def _title(config_class: type) -> str:
    """Return the name of a config class, or of the library's class that it extends."""
    library = next(kind for kind in config_class.__mro__ if not kind.__module__.startswith("rlm_plugins."))
    return f"{library.__module__.partition('.')[0]}.{library.__name__}"


def _field(path: str, schema: Schema, refused: str) -> Entry:
    section, _, name = path.partition(".")
    return {
        "kind": "setting",
        "name": name,
        "address": path,
        "type": type_in_words(schema),
        "default": schema.get("default"),
        "doc": inspect.cleandoc(schema.get("description", "")),
        "classes": [],
        "refused": refused,
        "equivalents": [list(row) for row in equivalents(name)] if section == "trainer" else [],
    }
