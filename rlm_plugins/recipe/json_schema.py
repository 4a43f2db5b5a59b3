"""JSON Schema of recipes, generated from the installed parts, for completion and validation in editors.

The schema has names, knobs and settings; the other checks (data requirements, batch sizes, columns) are those of ``rlm
check``.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import pydantic

from rlm_plugins.algorithm import SLOTS
from rlm_plugins.recipe.json_schema_fields import Schema, an_object, keys_of, or_null
from rlm_plugins.recipe.json_schema_parts import SCHEDULED, PartSchemas, key_of, named, names_of, ref, when_named
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.recipe.sections import FOLDER, MANY, Algorithm, Body, Plugins
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.stage_settings import Critic, Evaluation

_UNNAMED = {"type": "object", "not": {"required": ["name"]}}


def recipe_schema(registry: Registry) -> Schema:
    """Return the schema of a recipe (draft 2020-12).

    Args:
        registry: The parts. Config classes of trainers import TRL; LoRA imports PEFT.
    """
    parts = PartSchemas(registry)
    sections = _sections(parts)
    parts.defs.update({f"section.{key}": schema for key, schema in sections.items()})
    keys = {key: ref(f"section.{key}") for key in sections}
    by_trainer = [_settings_of(parts, trainer) for trainer in parts.of_key("trainer")]
    parts.defs["stage"] = {**an_object(keys), "allOf": by_trainer}
    stages = {"type": "array", "items": ref("stage"), "minItems": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rlm recipe",
        **an_object({**keys, "plugins": or_null(keys_of(Plugins)), "stages": or_null(stages)}),
        "if": {"not": {"required": ["stages"]}},
        "then": {"allOf": by_trainer},
        "$defs": parts.defs,
    }


def _sections(parts: PartSchemas) -> Schema:
    """Return the schemas of the keys of a stage."""
    fields = {k: v for trainer in parts.of_key("trainer") for k, v in parts.config(trainer)["properties"].items()}
    schemas: Schema = {
        "name": {"type": "string", "pattern": FOLDER},
        "model": or_null(_model(parts)),
        **{key: or_null(parts.part(key)) for key in ("environment", "generator")},
        **{key: or_null({"type": "array", "items": parts.part(key)}) for key in ("rewards", "callbacks", "observers")},
        "algorithm": or_null(_algorithm(parts)),
        "critic": or_null(_critic(parts)),
        "trainer": or_null(an_object(fields)),
        "evaluation": or_null(keys_of(Evaluation)),
        "on_divergence": {"enum": ["stop", "back_off", None]},
    }
    described = {key: _described(Body, key, schema) for key, schema in schemas.items()}
    for part in parts.of_key("section"):
        described[part.name] = {"anyOf": [{"const": "none"}, ref(key_of(part)), {"type": "null"}]}
    return described


def _described(section: type[pydantic.BaseModel], key: str, schema: Schema) -> Schema:
    """Return the schema of a key with its description."""
    return {**schema, "description": section.model_fields[key].description}


def _model(parts: PartSchemas) -> Schema:
    """Return the schema of a model: a part, a checkpoint, or (in a later stage) an adapter alone."""
    model_parts = parts.of_key("model")
    names = list(chain.from_iterable(map(names_of, model_parts)))
    checkpoint = {"if": {"not": {"properties": {"name": {"enum": names}}}}, "then": ref("model.builtin.pretrained")}
    name = {"anyOf": [parts.name("model"), {"type": "string", "description": "a hub name or a folder"}]}
    with_knobs = {**named(name), "allOf": [*(parts.when_chosen(part) for part in model_parts), checkpoint]}
    return {"anyOf": [name, with_knobs, an_object({"lora": or_null(parts.lora())})]}


def _critic(parts: PartSchemas) -> Schema:
    """Return the schema of the critic, with a schedule as learning rate and PEFT's fields as adapter."""
    section = keys_of(Critic)
    keys = section["properties"]
    keys["lora"] = {**or_null(parts.lora()), "description": keys["lora"]["description"]}
    keys["learning_rate"]["anyOf"] = [{"type": "number", "minimum": 0}, SCHEDULED, {"type": "null"}]
    return section


def _algorithm(parts: PartSchemas) -> Schema:
    """Return the schema of an algorithm: a name, or a mapping with overrides."""
    slots: Schema = {}
    for slot in SLOTS:
        schema = _several(parts, slot) if slot in MANY else _slot(parts, slot)
        slots[slot] = _described(Algorithm, slot, or_null(schema))
    algorithms = [
        when_named(algorithm, {"properties": _tuned(parts, algorithm)}) for algorithm in parts.of_key("algorithm")
    ]
    table = {**an_object({"name": parts.name("algorithm"), **slots}), "required": ["name"], "allOf": algorithms}
    return {"anyOf": [parts.name("algorithm"), table]}


def _slot(parts: PartSchemas, slot: str) -> Schema:
    return {"anyOf": [{"const": "none"}, *parts.part(slot)["anyOf"], _UNNAMED]}


def _several(parts: PartSchemas, slot: str) -> Schema:
    changes = {**_UNNAMED, "additionalProperties": {"type": "object"}}
    return {"anyOf": [{"const": "none"}, {"type": "array", "items": parts.part(slot)}, changes]}


def _tuned(parts: PartSchemas, algorithm: Part) -> Schema:
    """Return slot → schema of an override without a name: the knobs of the algorithm's part."""
    schemas: Schema = {}
    for slot, spec in ((slot, spec) for slot, spec in algorithm.target.slots().items() if slot not in MANY):
        name = spec if isinstance(spec, str) or spec is None else spec["name"]
        knobs: Any = False if name is None else ref(key_of(parts.registry.find(HOOK_OF[slot], name)))
        schemas[slot] = {"if": _UNNAMED, "then": knobs}
    return schemas


def _settings_of(parts: PartSchemas, trainer: Part) -> Schema:
    """Return the schema that ties the algorithms of a trainer to the fields of its config."""
    algorithms = [algorithm for algorithm in parts.of_key("algorithm") if algorithm.target.trainer in names_of(trainer)]
    names = {"enum": [name for algorithm in algorithms for name in names_of(algorithm)]}
    this = {"properties": {"algorithm": {"anyOf": [names, named(names)]}}, "required": ["algorithm"]}
    return {"if": this, "then": {"properties": {"trainer": or_null(ref(key_of(trainer)))}}}
