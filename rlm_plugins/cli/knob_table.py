"""The knobs of a part as plain data: name, type, default."""

from __future__ import annotations

from typing import Any

import pydantic

from rlm_plugins.registry.part import Part

Entry = dict[str, Any]
_TYPE_NAMES = {"number": "number", "integer": "whole number", "string": "text", "boolean": "true or false"}
_TYPE_NAMES |= {"object": "mapping", "null": "null"}
_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
MANY = 6
"""Keys of a mapping up to which all are listed; of a larger one only the required keys."""


def knobs(part: Part) -> list[Entry]:
    """Return name, type, JSON Schema, whether it is required, and default of every knob."""
    fields = part.knobs.model_fields
    try:
        schema = part.knobs.model_json_schema(mode="serialization")
    except pydantic.errors.PydanticInvalidForJsonSchema:
        schema = {}
    schemas, defs = schema.get("properties", {}), schema.get("$defs", {})
    return [_knob(name, field, schemas.get(name), defs) for name, field in fields.items()]


def _knob(name: str, field: Any, schema: Entry | None, defs: Entry) -> Entry:
    plain = {key: value for key, value in (schema or {}).items() if key not in ("title", "default")}
    return {
        "name": name,
        "type": type_in_words(plain, defs) if schema else getattr(field.annotation, "__name__", str(field.annotation)),
        "schema": plain,
        "required": field.is_required(),
        "default": (schema or {}).get("default"),
    }


def type_in_words(schema: Entry, defs: Entry | None = None) -> str:
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
