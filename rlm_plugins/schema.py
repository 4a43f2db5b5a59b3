"""A JSON Schema of recipes, made from the parts that are installed: completion and red underlines in an editor.

It knows names, knobs and settings. What only the machine can know (needs against supplies, the batch arithmetic, the
columns of a world) stays with ``rlm check``.
"""

from __future__ import annotations

from typing import Any

from rlm_plugins.grammar import MANY, Evaluation, Plugins
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.parts import Part
from rlm_plugins.registry import Registry
from rlm_plugins.rows import SLOTS
from rlm_plugins.schema_fields import Schema, an_object, config_schema, keys_of, knob_schema, or_null

_HOOKS = {hook.key: name for name, hook in HOOKS.items()}
_UNNAMED = {"type": "object", "not": {"required": ["name"]}}
_FOLDER = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}
_BESIDE_KNOBS: dict[str, Schema] = {
    "rewards": {
        "as": {"type": "string", "description": "the label it is logged under; default: its name"},
        "weight": {"type": "number", "default": 1.0, "description": "its coefficient in the sum of rewards"},
    },
    "penalties": {"beta": {"type": "number", "description": "its coefficient in the loss"}},
}


def recipe_schema(registry: Registry) -> Schema:
    """The schema of a recipe (draft 2020-12).

    Args:
        registry: The parts to offer. Engines are asked for their config class, which imports TRL; LoRA imports PEFT.
    """
    return _Writer(registry).recipe()


class _Writer:
    """Collects definitions (one per part and config class) while it writes the sections that refer to them."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.defs: Schema = {}
        self.required: dict[str, list[str]] = {}

    def recipe(self) -> Schema:
        for part in (p for p in self.registry if p.hook not in ("rlm_algorithms", "rlm_trainers")):
            self.define(part)
        sections = self.sections()
        by_engine = [self.condition(engine) for engine in self.offers("trainer")]
        self.defs["stage"] = {**an_object(sections), "allOf": by_engine}
        stages = {"type": "array", "items": _ref("stage"), "minItems": 1}
        head = {"plugins": or_null(keys_of(Plugins)), "stages": or_null(stages)}
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "rlm recipe",
            **an_object({**sections, **head}),
            "if": {"not": {"required": ["stages"]}},
            "then": {"allOf": by_engine},
            "$defs": self.defs,
        }

    def define(self, part: Part) -> None:
        """One definition per part: its knobs, and what may stand beside them."""
        key = HOOKS[part.hook].key
        knobs, self.required[_key(part)], inner = knob_schema(part)
        beside = _BESIDE_KNOBS.get(key, {})
        if key == "model":
            beside = {"lora": or_null(self.lora())}
        self.defs[_key(part)] = {**an_object({"name": {"type": "string"}, **beside, **knobs}), **_about(part)}
        self.defs.update(inner)

    def lora(self) -> Schema:
        if "lora" not in self.defs:
            from peft import LoraConfig

            from rlm_plugins.compose import NOT_IN_A_RECIPE

            self.defs["lora"] = config_schema(LoraConfig, NOT_IN_A_RECIPE)
        return _ref("lora")

    # -- the sections of a stage

    def sections(self) -> Schema:
        parts = {key: or_null(self.part(key)) for key in ("environment", "sampler", "rollouts")}
        lists = {key: or_null({"type": "array", "items": self.part(key)}) for key in ("rewards", "callbacks")}
        configs = [self.config(engine) for engine in self.offers("trainer")]
        trainer = an_object({key: value for config in configs for key, value in config["properties"].items()})
        sections = {
            "name": _FOLDER,
            "model": or_null(self.model()),
            **parts,
            **lists,
            "algorithm": or_null(self.algorithm()),
            "trainer": or_null({**trainer, "description": "fields of TRL's config, word for word"}),
            "evaluation": or_null(keys_of(Evaluation)),
        }
        self.defs.update({f"section.{key}": schema for key, schema in sections.items()})
        return {key: _ref(f"section.{key}") for key in sections}

    def part(self, key: str) -> Schema:
        """A part of one hook: by name, or with knobs."""
        chosen = [self.chosen(part) for part in self.offers(key)]
        return {"anyOf": [self.name(key), {**_named(self.name(key)), "allOf": chosen}]}

    def chosen(self, part: Part) -> Schema:
        needed = [*self.required[_key(part)], *(["beta"] if part.hook == "rlm_penalties" else [])]
        return _when_named(part, {"allOf": [_ref(_key(part)), {"required": needed}]})

    def model(self) -> Schema:
        """A part, the address of a checkpoint, or (in a later stage) an adapter alone."""
        chosen = [self.chosen(part) for part in self.offers("model")]
        known = [name for part in self.offers("model") for name in _names(part)]
        pretrained = {**self.defs["model.builtin.pretrained"]}
        checkpoint = {"if": {"not": {"properties": {"name": {"enum": known}}}}, "then": pretrained}
        name = {"anyOf": [self.name("model"), {"type": "string", "description": "a hub name or a folder"}]}
        adapter = {**an_object({"lora": or_null(self.lora())})}
        return {"anyOf": [name, {**_named(name), "allOf": [*chosen, checkpoint]}, adapter]}

    def algorithm(self) -> Schema:
        slots = {slot: or_null(self.several(slot) if slot in MANY else self.slot(slot)) for slot in SLOTS}
        rows = [_when_named(row, {"properties": self.tuned(row)}) for row in self.offers("algorithm")]
        table = {**an_object({"name": self.name("algorithm"), **slots}), "required": ["name"], "allOf": rows}
        return {"anyOf": [self.name("algorithm"), table]}

    def slot(self, slot: str) -> Schema:
        return {"anyOf": [{"const": "none"}, *self.part(slot)["anyOf"], _UNNAMED]}

    def several(self, slot: str) -> Schema:
        changes = {**_UNNAMED, "additionalProperties": {"type": "object"}}
        return {"anyOf": [{"const": "none"}, {"type": "array", "items": self.part(slot)}, changes]}

    def tuned(self, row: Part) -> Schema:
        """Slot → what may be said there without a name: the knobs of the part that the row has in it."""
        found: Schema = {}
        for slot, spec in ((slot, spec) for slot, spec in row.target.slots().items() if slot not in MANY):
            part = spec if isinstance(spec, str) or spec is None else spec["name"]
            own: Any = False if part is None else _ref(_key(self.registry.find(_HOOKS[slot], part)))
            found[slot] = {"if": _UNNAMED, "then": own}
        return found

    # -- names and engines

    def offers(self, key: str) -> list[Part]:
        return [part for part in self.registry if part.hook == _HOOKS[key]]

    def name(self, key: str) -> Schema:
        """The names of one hook with what they mean; full names are right too."""
        hook, title = _HOOKS[key], f"name.{key}"
        if title not in self.defs:
            short = [{"const": name, **_about(self.registry.find(hook, name))} for name in self.registry.names(hook)]
            full = {"enum": [part.full_name for part in self.offers(key)]}
            self.defs[title] = {"anyOf": [*short, full]}
        return _ref(title)

    def config(self, engine: Part) -> Schema:
        if _key(engine) not in self.defs:
            instance: Any = engine.bind({}).target
            self.defs[_key(engine)] = config_schema(instance.config_class(), getattr(instance, "refused", {}))
        found: Schema = self.defs[_key(engine)]
        return found

    def condition(self, engine: Part) -> Schema:
        """Where a row of this engine is named, `trainer:` has the fields of its config."""
        rows = [row for row in self.offers("algorithm") if row.target.trainer in _names(engine)]
        names = {"enum": [name for row in rows for name in _names(row)]}
        named = {"properties": {"algorithm": {"anyOf": [names, _named(names)]}}, "required": ["algorithm"]}
        return {"if": named, "then": {"properties": {"trainer": or_null(_ref(_key(engine)))}}}


def _key(part: Part) -> str:
    return f"{HOOKS[part.hook].key}.{part.plugin}.{part.name}"


def _names(part: Part) -> list[str]:
    return [part.name, part.full_name]


def _ref(key: str) -> Schema:
    return {"$ref": f"#/$defs/{key}"}


def _named(name: Schema) -> Schema:
    return {"type": "object", "properties": {"name": name}, "required": ["name"]}


def _when_named(part: Part, then: Schema) -> Schema:
    return {"if": {"properties": {"name": {"enum": _names(part)}}, "required": ["name"]}, "then": then}


def _about(part: Part) -> Schema:
    """The first line of the docstring; of a row, what it is about."""
    text = getattr(part.target, "about", None) or part.target.__doc__ or ""
    return {"description": text.strip().partition("\n")[0]} if text.strip() else {}
