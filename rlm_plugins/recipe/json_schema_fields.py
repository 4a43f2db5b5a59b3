"""JSON Schema of knobs and settings: of one part, of one config class."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

import pydantic

from rlm_plugins.recipe.trainer_settings import without_loose_text
from rlm_plugins.registry.part import Part

Schema = dict[str, Any]


def an_object(properties: Mapping[str, Any]) -> Schema:
    """Return the schema of a mapping with these keys and no others."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def or_null(schema: Schema) -> Schema:
    """Return the schema of the same, or null."""
    return {"anyOf": [{"type": "null"}, schema]}


def knob_schema(part: Part) -> tuple[Schema, list[str], Schema]:
    """Return the schemas of a part's knobs.

    Returns:
        Knob → schema; the knobs without a default; definitions the schemas refer to.
    """
    required = [name for name, field in part.knobs.model_fields.items() if field.is_required()]
    try:
        schema = _plain(part.knobs.model_json_schema())
    except pydantic.errors.PydanticInvalidForJsonSchema:  # a knob of a type that no recipe can hold
        return {name: {} for name in part.knobs.model_fields}, required, {}
    return schema.get("properties", {}), required, schema.get("$defs", {})


def config_schema(config_class: type, refused: Mapping[str, str]) -> Schema:
    """Return the schema of a config class with its own help texts, without refused fields."""
    hints = typing.get_type_hints(config_class)
    fields = [f for f in dataclasses.fields(config_class) if f.init and f.name not in refused]
    return an_object({f.name: _field(f, hints[f.name]) for f in fields})


def _field(field: Any, hint: Any) -> Schema:
    try:
        schema = _plain(pydantic.TypeAdapter(without_loose_text(hint)).json_schema())
    except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError):
        schema = {}
    if "$ref" in str(schema):  # a config inside the config: its own constructor checks it
        schema = {}
    if isinstance(field.default, str | int | float | bool):
        schema["default"] = getattr(field.default, "value", field.default)
    if text := field.metadata.get("help"):
        schema["description"] = text
    return schema


def _plain(schema: Any) -> Any:
    """Return a schema without the titles that pydantic derives from names."""
    if isinstance(schema, list):
        return [_plain(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _plain(x) for key, x in schema.items() if not (key == "title" and isinstance(x, str))}


def plain_schema(annotation: Any) -> Schema:
    """Return the schema of a type."""
    schema: Schema = _plain(pydantic.TypeAdapter(annotation).json_schema())
    return schema


def keys_of(model: Any) -> Schema:
    """Return the schema of a section of a recipe that contains no parts."""
    schema: Schema = _plain(pydantic.TypeAdapter(model).json_schema())
    schema.pop("description", None)
    return schema
