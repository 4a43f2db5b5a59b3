"""JSON Schema of parts: one definition per part, and references by name."""

from __future__ import annotations

from typing import Any

from rlm_plugins.hooks import HOOKS
from rlm_plugins.recipe import sections
from rlm_plugins.recipe.json_schema_fields import (
    Schema,
    an_object,
    config_schema,
    keys_of,
    knob_schema,
    or_null,
    plain_schema,
)
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.registry import Registry
from rlm_plugins.registry.binding import takes_schedule
from rlm_plugins.registry.part import Part
from rlm_plugins.registry.protocols import needs_equation, refused_by
from rlm_plugins.registry.setting import Setting
from rlm_plugins.schedule import SHAPES

_STEPS: Schema = {"type": "integer", "description": "in optimizer steps"}
SCHEDULE: Schema = {
    **an_object(
        {
            "from": {"type": "number"},
            "to": {"type": "number"},
            "over": {**_STEPS, "minimum": 1},
            "after": {**_STEPS, "minimum": 0, "default": 0},
            "shape": {"enum": list(SHAPES), "default": SHAPES[0]},
        }
    ),
    "required": ["from", "to", "over"],
    "description": "a number that changes with the optimizer steps done",
}
SCHEDULED: Schema = {"$ref": "#/$defs/schedule"}
_ENTRIES: dict[str, type[sections.Keys]] = {
    "rewards": sections.Reward,
    "rollouts": sections.Source,
    "filters": sections.Filter,
    "policy_loss": sections.Normalized,
    "token_weights": sections.Sourced,
    "penalties": sections.Penalty,
}


def _option_schemas(key: str) -> Schema:
    """Return the schemas of the options of a hook."""
    options: Schema = keys_of(_ENTRIES[key])["properties"] if key in _ENTRIES else {}
    if "aggregator" in options:
        described = {"description": options["aggregator"]["description"]}
        options["aggregator"] = {"anyOf": [{"type": name} for name in ("null", "string", "object")], **described}
    if "beta" in options:
        options["beta"] = {"anyOf": [{"type": "number"}, SCHEDULED], "description": options["beta"]["description"]}
    return {name: schema for name, schema in options.items() if name != "name"}


_WITHOUT_KNOBS = ("rlm_algorithms", "rlm_trainers", "rlm_settings", "rlm_commands")


class PartSchemas:
    """Definitions of all parts of a registry, and schemas that refer to them.

    Args:
        registry: The parts.

    Attributes:
        defs: The definitions, by `key_of` a part and by name.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.defs: Schema = {"schedule": SCHEDULE}
        self._required: dict[str, list[str]] = {}
        for part in (p for p in registry if p.hook not in _WITHOUT_KNOBS):
            self._define(part)

    def _define(self, part: Part) -> None:
        """Add the definition of a part: its knobs, and the keys beside them."""
        key = HOOKS[part.hook].key
        knobs, self._required[key_of(part)], inner = knob_schema(part)
        knobs = {name: _or_schedule(schema) if takes_schedule(part, name) else schema for name, schema in knobs.items()}
        options = {"lora": or_null(self.lora())} if key == "model" else _option_schemas(key)
        self.defs[key_of(part)] = {**an_object({"name": {"type": "string"}, **options, **knobs}), **_description(part)}
        self.defs.update(inner)

    def of_key(self, key: str) -> list[Part]:
        """Return the parts of one recipe key."""
        return [part for part in self.registry if part.hook == HOOK_OF[key]]

    def name(self, key: str) -> Schema:
        """Return the schema of their names, each with its description; full names are valid too."""
        hook, title = HOOK_OF[key], f"name.{key}"
        if title not in self.defs:
            described = [
                {"const": name, **_description(self.registry.find(hook, name))} for name in self.registry.names(hook)
            ]
            full = {"enum": [part.full_name for part in self.of_key(key)]}
            self.defs[title] = {"anyOf": [*described, full]}
        return ref(title)

    def part(self, key: str) -> Schema:
        """Return the schema of one of them: by name, or with knobs."""
        conditions = [self.when_chosen(part) for part in self.of_key(key)]
        return {"anyOf": [self.name(key), {**named(self.name(key)), "allOf": conditions}]}

    def when_chosen(self, part: Part) -> Schema:
        """Return the schema of the knobs of a part, if it is named."""
        required = [*self._required[key_of(part)], *(["beta"] if part.hook == "rlm_penalties" else [])]
        return when_named(part, {"allOf": [ref(key_of(part)), {"required": required}]})

    def config(self, trainer: Part) -> Schema:
        """Return the schema of a trainer's config class."""
        if key_of(trainer) not in self.defs:
            instance: Any = trainer.bind({}).target
            schema = config_schema(instance.config_class(), refused_by(instance))
            if needs_equation(instance):
                schema["properties"] |= {part.name: _setting(part.target) for part in self.of_key("setting")}
            self.defs[key_of(trainer)] = schema
        config: Schema = self.defs[key_of(trainer)]
        return config

    def lora(self) -> Schema:
        """Return the schema of LoraConfig; with a `peft_type`, of any kind of adapter."""
        if "lora" not in self.defs:
            from peft import LoraConfig

            from rlm_plugins.recipe.trainer_settings import KEY, NOT_IN_A_RECIPE

            other = {"type": "object", "required": [KEY], "properties": {KEY: {"type": "string"}}}
            self.defs["lora"] = {"anyOf": [config_schema(LoraConfig, NOT_IN_A_RECIPE), other]}
        return ref("lora")


def _or_schedule(schema: Schema) -> Schema:
    """Return the schema of a knob, or of a schedule of it."""
    annotations: Schema = {key: schema[key] for key in ("default", "description") if key in schema}
    return {
        "anyOf": [{key: value for key, value in schema.items() if key not in annotations}, SCHEDULED],
        **annotations,
    }


def key_of(part: Part) -> str:
    """Return the title of a part's definition."""
    return f"{HOOKS[part.hook].key}.{part.plugin}.{part.name}"


def names_of(part: Part) -> list[str]:
    """Return the names that a recipe may use."""
    return [part.name, part.full_name]


def ref(title: str) -> Schema:
    """Return a reference to the definition of that title."""
    return {"$ref": f"#/$defs/{title}"}


def named(name: Schema) -> Schema:
    """Return the schema of a mapping with such a `name`."""
    return {"type": "object", "properties": {"name": name}, "required": ["name"]}


def when_named(part: Part, then: Schema) -> Schema:
    """Return a schema for the mappings that name one part."""
    return {"if": {"properties": {"name": {"enum": names_of(part)}}, "required": ["name"]}, "then": then}


def _description(part: Part) -> Schema:
    """Return the description of a part: the first line of its docstring; of an algorithm its `about`."""
    text = getattr(part.target, "about", None) or part.target.__doc__ or ""
    return {"description": text.strip().partition("\n")[0]} if text.strip() else {}


def _setting(setting: Setting) -> Schema:
    """Return the schema of a setting that a package adds under `trainer:`."""
    return {**plain_schema(setting.annotation), "description": setting.about}
