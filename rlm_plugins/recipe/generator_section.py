"""The section `generator`: decoding of the policy, and the trainer settings that it fixes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.part_lookup import Finder
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Evaluates, SetsTrainer

DEFAULT, REFERENCE = "fast", "transformers"
"""Generators of a recipe without the section, and with `none`."""


def generator_of(finder: Finder, body: Mapping[str, Any]) -> tuple[Bound, dict[str, Any], dict[str, Any]]:
    """Return the part, its section as plain data, and `trainer:` with the settings that the part fixes.

    Raises:
        RecipeError: An unknown part, a wrong knob, or a conflict with `trainer:`.
    """
    name = REFERENCE if "generator" in body else DEFAULT
    bound, plain = finder.part("generator", body.get("generator") or {"name": name}, ("generator",))
    settings = dict(body.get("trainer") or {})
    target: Any = bound.target
    fixed = target.trainer_settings if isinstance(target, SetsTrainer) else {}
    for name, value in fixed.items():
        if settings.setdefault(name, value) != value:
            problem = f"the generator '{bound.part.name}' requires `{name}: {value}`, got {settings[name]}"
            where = finder.address("trainer", name)
            raise RecipeError(problem, where=where, hint="leave it out: it follows from the generator")
        finder.note(value, ("trainer", name), f"generator {bound.part.name}")
    return bound, plain, settings


def generates(trainer: Bound) -> bool:
    """Return True if a stage of this trainer generates completions, in training or evaluation."""
    return not isinstance(trainer.target, Evaluates)
