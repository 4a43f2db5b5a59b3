"""Loading of a recipe from Python, with objects in the place of sections."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_plugins import recipe as recipes
from rlm_plugins.api.objects import add, constant, named_algorithm, named_entry
from rlm_plugins.errors import RlmError
from rlm_plugins.models.auto_class import tokenizer_of
from rlm_plugins.recipe import Recipe
from rlm_plugins.registry import Registry
from rlm_plugins.specs import EnvironmentSpec, ModelSpec

RecipeLike = str | Path | Mapping[str, Any] | Recipe
Overrides = Mapping[str, Any] | Sequence[str]
OBJECTS = ("model", "tokenizer", "train_dataset", "test_dataset", "rewards", "algorithm")
"""Arguments of :func:`rlm_plugins.train` that stand for sections of a recipe."""


def load(recipe: RecipeLike, overrides: Overrides = ()) -> Recipe:
    """Load a recipe and check its structure; nothing heavy is imported.

    Args:
        recipe: A YAML file, or a mapping with the same keys.
        overrides: ``{"trainer.learning_rate": 1e-6}`` or ``["trainer.learning_rate=1e-6"]``.

    Raises:
        RecipeError: It names the address.

    >>> experiment = {"model": "scratch", "environment": "addition", "algorithm": "grpo"}
    >>> load(experiment, {"trainer.seed": 1}).bodies[0]["trainer"]
    {'seed': 1}
    """
    if isinstance(recipe, Recipe):
        return recipe
    changes = override_texts(overrides)
    if isinstance(recipe, Mapping):
        return recipes.of_mapping(recipe, changes)
    return recipes.load(recipe, changes)


def override_texts(overrides: Overrides) -> list[str]:
    """Return overrides as ``key=value``."""
    if isinstance(overrides, Mapping):
        return [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    return list(overrides)


def prepared(recipe: RecipeLike, overrides: Overrides, **objects: Any) -> tuple[Recipe, Registry]:
    """Return a recipe with Python objects in the place of sections, and the registry that has them."""
    for name in objects:
        if name not in OBJECTS:
            raise RlmError(f"unknown argument '{name}'", allowed=", ".join(OBJECTS))
    if isinstance(recipe, Mapping):
        sections, registry = dict(recipe), Registry(load=(recipe.get("plugins") or {}).get("load", ()))
    else:
        loaded = load(recipe, overrides)
        registry = Registry(load=loaded.load, block=loaded.block)
        sections = {}
    replaced = _sections(registry, sections, objects)
    if isinstance(recipe, Mapping):
        return load(sections | replaced, overrides), registry
    for number, body in enumerate(loaded.bodies):
        if number == 0 and "model" in replaced:
            body["model"] = _with_adapter(replaced["model"], body.get("model"))
        body |= {key: value for key, value in replaced.items() if key != "model"}
    return loaded, registry


def _sections(registry: Registry, sections: Mapping[str, Any], objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections that hold objects, with the names that the registry gives them."""
    replaced: dict[str, Any] = {}
    model = objects.get("model", sections.get("model"))
    if hasattr(model, "parameters"):
        replaced["model"] = {"name": add(registry, "model", _in_memory(model, objects.get("tokenizer")), "model")}
    elif "model" in objects:
        replaced["model"] = {"name": model} if isinstance(model, str) else model
    if "model" in replaced:
        replaced["model"] = _with_adapter(replaced["model"], sections.get("model"))
    if "train_dataset" in objects:
        spec = EnvironmentSpec(train=objects["train_dataset"], test=objects.get("test_dataset", ()))
        replaced["environment"] = {"name": add(registry, "environment", constant(spec), "train_dataset")}
    if rewards := objects.get("rewards", sections.get("rewards")):
        entries = [named_entry(registry, "rewards", entry) for entry in rewards]
        replaced["rewards"] = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
        for entry in replaced["rewards"]:
            entry.setdefault("as", entry["name"].rpartition("/")[2].rpartition(":")[2])
    algorithm = objects.get("algorithm", sections.get("algorithm"))
    if algorithm is not None:
        replaced["algorithm"] = named_algorithm(registry, algorithm)
    return replaced


def _with_adapter(model: Mapping[str, Any], section: Any) -> dict[str, Any]:
    """Return the section of a model that was given as an object, with the adapter of the section it replaces."""
    lora = section.get("lora") if isinstance(section, Mapping) else None
    return {**({"lora": lora} if lora is not None else {}), **model}


def _in_memory(model: Any, tokenizer: Any) -> Callable[[], ModelSpec]:
    if tokenizer is None:
        raise RlmError("`model` is an instance, so its `tokenizer` is required", where="train(model=…)")
    spec = ModelSpec(
        config=model.config,
        tokenizer=lambda: tokenizer_of(tokenizer),
        load=lambda: model,
        origin="given in Python",
        processor=(lambda: tokenizer) if hasattr(tokenizer, "image_processor") else None,
    )
    return constant(spec)
