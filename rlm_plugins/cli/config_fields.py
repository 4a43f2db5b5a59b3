"""The fields of the config classes behind ``trainer:`` and ``lora:``, with the help texts of their own libraries."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

from rlm_plugins.cli.knob_table import type_in_words
from rlm_plugins.recipe.json_schema_fields import config_schema
from rlm_plugins.recipe.trl_fields import RLOO, decided, equivalents, slot_of
from rlm_plugins.registry import Registry

Entry = dict[str, Any]


def config_fields(registry: Registry) -> dict[str, Entry]:
    """Return every field that a recipe may set under ``trainer:`` or ``lora:``. Imports TRL and PEFT.

    Args:
        registry: Supplies the trainers, each with its config class.

    Returns:
        Path (``trainer.learning_rate``, ``lora.r``) → ``name``, ``address`` (the path), ``type``, ``default``, ``doc``,
        ``classes`` (the config classes with that field), ``refused``: why a recipe cannot set it, or empty, and
        ``equivalents``: values of TRL's field, each with the part or knob of the algorithm that it stands for.
    """
    import trl

    fields: dict[str, Entry] = {}
    for section, config_class, refused in _config_classes(registry):
        title = _title(config_class)
        for name, schema in _properties(config_class).items():
            path = f"{section}.{name}"
            entry = fields.setdefault(path, _entry(path, schema, refused.get(name, "")))
            if title not in entry["classes"]:
                entry["classes"].append(title)
    for name, schema in _properties(trl.RLOOConfig).items():
        if name in decided(RLOO):
            path = f"trainer.{name}"
            entry = fields.setdefault(path, _entry(path, schema, f"say `{slot_of(RLOO, name)}`"))
            entry["classes"].append(_title(trl.RLOOConfig))
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


def _entry(path: str, schema: Entry, refused: str) -> Entry:
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
