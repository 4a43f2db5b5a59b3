"""JSON Schema of recipes with the installed parts, for completion and validation in editors: ``rlm explain --schema``.

It has names, knobs and settings; the other checks (data requirements, batch sizes, columns) are those of ``rlm check``.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

import pydantic

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.equation.knobs import SHAPES
from rlm_plugins.recipe import sections
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.recipe.trainer_settings import KEY, NOT_IN_A_RECIPE, without_loose_text
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part, takes_schedule
from rlm_plugins.registry.protocols import needs_equation, refused_by
from rlm_plugins.specs import SLOTS
from rlm_plugins.stage import Critic, Evaluation

Schema = dict[str, Any]

SCHEDULED: Schema = {"$ref": "#/$defs/schedule"}
_NULL: Schema = {"type": "null"}
_STEPS: Schema = {"type": "integer", "description": "in optimizer steps"}
_UNNAMED: Schema = {"type": "object", "not": {"required": ["name"]}}
_ENTRIES: dict[str, type[sections.Keys]] = {
    "rewards": sections.Reward,
    "rollouts": sections.Source,
    "filters": sections.Filter,
    "policy_loss": sections.Normalized,
    "token_weights": sections.Sourced,
    "penalties": sections.Penalty,
}
_WITHOUT_KNOBS = ("rlm_algorithms", "rlm_trainers", "rlm_settings", "rlm_commands")


def recipe_schema(registry: Registry) -> Schema:
    """Return the schema of a recipe (draft 2020-12).

    Args:
        registry: The parts. Config classes of trainers import TRL; LoRA imports PEFT.
    """
    return _Schemas(registry).recipe()


def config_schema(config_class: type, refused: Mapping[str, str]) -> Schema:
    """Return the schema of a config class with its own help texts, without refused fields."""
    hints = typing.get_type_hints(config_class)
    fields = [f for f in dataclasses.fields(config_class) if f.init and f.name not in refused]
    return _object({f.name: _field(f, hints[f.name]) for f in fields})


def schema_of(annotation: Any) -> Schema:
    """Return the schema of a type, without the titles that pydantic derives from names."""
    return dict(_untitled(pydantic.TypeAdapter(annotation).json_schema()))


def _untitled(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_untitled(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _untitled(x) for key, x in schema.items() if not (key == "title" and isinstance(x, str))}


def _field(field: Any, hint: Any) -> Schema:
    try:
        schema = schema_of(without_loose_text(hint))
    except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError):
        schema = {}
    if "$ref" in str(schema):  # a config inside the config: its own constructor checks it
        schema = {}
    if isinstance(field.default, str | int | float | bool):
        schema["default"] = getattr(field.default, "value", field.default)
    return {**schema, **({"description": field.metadata["help"]} if field.metadata.get("help") else {})}


def _keys_of(section: Any) -> Schema:
    """Return the schema of a section that contains no parts; its key has the description."""
    return {key: value for key, value in schema_of(section).items() if key != "description"}


def _object(properties: Mapping[str, Any], **keywords: Any) -> Schema:
    """Return the schema of a mapping with these keys and no others."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **keywords}


def _or_null(*schemas: Schema) -> Schema:
    return {"anyOf": [_NULL, *schemas]}


def _ref(title: str) -> Schema:
    return {"$ref": f"#/$defs/{title}"}


def _title(part: Part) -> str:
    return f"{HOOKS[part.hook].key}.{part.plugin}.{part.name}"


def _named(name: Schema) -> Schema:
    return {"type": "object", "properties": {"name": name}, "required": ["name"]}


def _when_named(part: Part, then: Schema) -> Schema:
    condition = {"properties": {"name": {"enum": [part.name, part.full_name]}}, "required": ["name"]}
    return {"if": condition, "then": then}


def _described(part: Part) -> Schema:
    """Return the description of a part: the first line of its docstring; of an algorithm its `about`."""
    text = getattr(part.target, "about", None) or part.target.__doc__ or ""
    return {"description": text.strip().partition("\n")[0]} if text.strip() else {}


def _options(key: str) -> Schema:
    """Return the schemas of the keys of a hook beside the knobs."""
    options = _keys_of(_ENTRIES[key])["properties"] if key in _ENTRIES else {}
    if "aggregator" in options:
        kinds = [{"type": name} for name in ("null", "string", "object")]
        options["aggregator"] = {"anyOf": kinds, "description": options["aggregator"]["description"]}
    if "beta" in options:
        options["beta"] = {"anyOf": [{"type": "number"}, SCHEDULED], "description": options["beta"]["description"]}
    return {name: schema for name, schema in options.items() if name != "name"}


class _Schemas:
    """Definitions of all parts of a registry, and schemas that refer to them."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        numbers = {"from": {"type": "number"}, "to": {"type": "number"}, "over": {**_STEPS, "minimum": 1}}
        later = {"after": {**_STEPS, "minimum": 0, "default": 0}, "shape": {"enum": list(SHAPES), "default": SHAPES[0]}}
        about = "a number that changes with the optimizer steps done"
        self.defs: Schema = {
            "schedule": _object({**numbers, **later}, required=["from", "to", "over"], description=about)
        }
        self.required: dict[str, list[str]] = {}
        for part in (p for p in registry if p.hook not in _WITHOUT_KNOBS):
            self.define(part)

    def define(self, part: Part) -> None:
        """Add the definition of a part: its knobs, and the keys beside them."""
        key, title, fields = HOOKS[part.hook].key, _title(part), part.knobs.model_fields
        try:
            schema = _untitled(part.knobs.model_json_schema())
        except pydantic.errors.PydanticInvalidForJsonSchema:  # a knob of a type that no recipe can hold
            schema = {"properties": {name: {} for name in fields}}
        knobs: Schema = schema.get("properties", {})
        for name in filter(lambda name: takes_schedule(part, name), knobs):
            annotations = {key: knobs[name].pop(key) for key in ("default", "description") if key in knobs[name]}
            knobs[name] = {"anyOf": [knobs[name], SCHEDULED], **annotations}
        options = {"lora": _or_null(self.lora())} if key == "model" else _options(key)
        self.required[title] = [name for name, field in fields.items() if field.is_required()]
        self.defs[title] = {**_object({"name": {"type": "string"}, **options, **knobs}), **_described(part)}
        self.defs.update(schema.get("$defs", {}))

    def parts(self, key: str) -> list[Part]:
        """Return the parts of one recipe key."""
        return [part for part in self.registry if part.hook == HOOK_OF[key]]

    def name(self, key: str) -> Schema:
        """Return the schema of their names, each with its description; full names are valid too."""
        title, listed = f"name.{key}", self.registry.names(HOOK_OF[key])
        if title not in self.defs:
            described = [{"const": name, **_described(self.registry.find(HOOK_OF[key], name))} for name in listed]
            full = {"enum": [part.full_name for part in self.parts(key)]}
            self.defs[title] = {"anyOf": [*described, full]}
        return _ref(title)

    def part(self, key: str) -> Schema:
        """Return the schema of one of them: by name, or with knobs."""
        conditions = [self.when_chosen(part) for part in self.parts(key)]
        return {"anyOf": [self.name(key), {**_named(self.name(key)), "allOf": conditions}]}

    def when_chosen(self, part: Part) -> Schema:
        """Return the schema of the knobs of a part, if it is named."""
        required = [*self.required[_title(part)], *(["beta"] if part.hook == "rlm_penalties" else [])]
        return _when_named(part, {"allOf": [_ref(_title(part)), {"required": required}]})

    def lora(self) -> Schema:
        """Return the schema of LoraConfig; with a `peft_type`, of any kind of adapter."""
        if "lora" not in self.defs:
            from peft import LoraConfig

            other = {"type": "object", "required": [KEY], "properties": {KEY: {"type": "string"}}}
            self.defs["lora"] = {"anyOf": [config_schema(LoraConfig, NOT_IN_A_RECIPE), other]}
        return _ref("lora")

    def config(self, trainer: Part) -> Schema:
        """Return the schema of a trainer's config class, with the settings that packages add."""
        if _title(trainer) not in self.defs:
            instance: Any = trainer.bind({}).target
            schema = config_schema(instance.config_class(), refused_by(instance))
            for part in self.parts("setting") if needs_equation(instance) else ():
                setting = part.target
                schema["properties"][part.name] = {**schema_of(setting.annotation), "description": setting.about}
            self.defs[_title(trainer)] = schema
        return dict(self.defs[_title(trainer)])

    def recipe(self) -> Schema:
        """Return the schema of a recipe."""
        keys = self.sections()
        self.defs.update({f"section.{key}": schema for key, schema in keys.items()})
        refs = {key: _ref(f"section.{key}") for key in keys}
        by_trainer = [self.settings_of(trainer) for trainer in self.parts("trainer")]
        self.defs["stage"] = _object(refs, allOf=by_trainer)
        stages = {"type": "array", "items": _ref("stage"), "minItems": 1}
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "rlm recipe",
            **_object({**refs, "plugins": _or_null(_keys_of(sections.Plugins)), "stages": _or_null(stages)}),
            "if": {"not": {"required": ["stages"]}},
            "then": {"allOf": by_trainer},
            "$defs": self.defs,
        }

    def sections(self) -> Schema:
        """Return the schemas of the keys of a stage."""
        fields = {k: v for trainer in self.parts("trainer") for k, v in self.config(trainer)["properties"].items()}
        lists = ("rewards", "callbacks", "observers")
        schemas: Schema = {
            "name": {"type": "string", "pattern": sections.FOLDER},
            "model": _or_null(self.model()),
            **{key: _or_null(self.part(key)) for key in ("environment", "generator", "engine")},
            **{key: _or_null({"type": "array", "items": self.part(key)}) for key in lists},
            "algorithm": _or_null(self.algorithm()),
            "critic": _or_null(self.critic()),
            "trainer": _or_null(_object(fields)),
            "evaluation": _or_null(_keys_of(Evaluation)),
            "on_divergence": {"enum": ["stop", "back_off", None]},
        }
        for key, schema in schemas.items():
            schema["description"] = sections.Body.model_fields[key].description
        of_packages = {part.name: _or_null(_ref(_title(part))) for part in self.parts("section")}
        return schemas | {name: {"anyOf": [{"const": "none"}, *x["anyOf"][::-1]]} for name, x in of_packages.items()}

    def model(self) -> Schema:
        """Return the schema of a model: a part, a checkpoint, or (in a later stage) an adapter alone."""
        models, checkpoint = self.parts("model"), _ref("model.builtin.pretrained")
        names = [name for part in models for name in (part.name, part.full_name)]
        unnamed = {"if": {"not": {"properties": {"name": {"enum": names}}}}, "then": checkpoint}
        name = {"anyOf": [self.name("model"), {"type": "string", "description": "a hub name or a folder"}]}
        with_knobs = {**_named(name), "allOf": [*map(self.when_chosen, models), unnamed]}
        return {"anyOf": [name, with_knobs, _object({"lora": _or_null(self.lora())})]}

    def critic(self) -> Schema:
        """Return the schema of the critic, with a schedule as learning rate and PEFT's fields as adapter."""
        section = _keys_of(Critic)
        keys = section["properties"]
        keys["lora"] = {**_or_null(self.lora()), "description": keys["lora"]["description"]}
        keys["learning_rate"]["anyOf"] = [{"type": "number", "minimum": 0}, SCHEDULED, _NULL]
        return section

    def algorithm(self) -> Schema:
        """Return the schema of an algorithm: a name, or a mapping with overrides."""
        slots: Schema = {}
        for slot in SLOTS:
            one: Any = self.part(slot)
            changes = {**_UNNAMED, "additionalProperties": {"type": "object"}}
            several = [{"type": "array", "items": one}, changes]
            choices = several if slot in sections.MANY else [*one["anyOf"], _UNNAMED]
            description = sections.Algorithm.model_fields[slot].description
            slots[slot] = {**_or_null({"anyOf": [{"const": "none"}, *choices]}), "description": description}
        tuned = [_when_named(part, {"properties": self.tuned(part)}) for part in self.parts("algorithm")]
        table = _object({"name": self.name("algorithm"), **slots}, required=["name"], allOf=tuned)
        return {"anyOf": [self.name("algorithm"), table]}

    def tuned(self, algorithm: Part) -> Schema:
        """Return slot → schema of an override without a name: the knobs of the algorithm's part."""
        schemas: Schema = {}
        for slot, spec in ((slot, x) for slot, x in algorithm.target.slots().items() if slot not in sections.MANY):
            name = spec if isinstance(spec, str) or spec is None else spec["name"]
            knobs: Any = False if name is None else _ref(_title(self.registry.find(HOOK_OF[slot], name)))
            schemas[slot] = {"if": _UNNAMED, "then": knobs}
        return schemas

    def settings_of(self, trainer: Part) -> Schema:
        """Return the schema that ties the algorithms of a trainer to the fields of its config."""
        ours = [a for a in self.parts("algorithm") if a.target.trainer in (trainer.name, trainer.full_name)]
        names = {"enum": [name for algorithm in ours for name in (algorithm.name, algorithm.full_name)]}
        this = {"properties": {"algorithm": {"anyOf": [names, _named(names)]}}, "required": ["algorithm"]}
        return {"if": this, "then": {"properties": {"trainer": _or_null(_ref(_title(trainer)))}}}
