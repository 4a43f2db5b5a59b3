"""`generator:` of a recipe: how the policy writes, and what TRL must be told with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.part_lookup import Finder
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Evaluates, SetsTrainer

USUAL, PLAIN = "fast", "transformers"
"""Who writes where a recipe says nothing, and where it says none."""


def generator_of(finder: Finder, said: Mapping[str, Any]) -> tuple[Bound, dict[str, Any], dict[str, Any]]:
    """The part, the same as plain data, and `trainer:` with what the part sets there.

    Raises:
        RecipeError: Nobody offers it, a wrong knob, or `trainer:` says otherwise.
    """
    name = PLAIN if "generator" in said else USUAL
    bound, plain = finder.part("generator", said.get("generator") or {"name": name}, ("generator",))
    settings = dict(said.get("trainer") or {})
    target: Any = bound.target
    fixed = target.trainer_settings if isinstance(target, SetsTrainer) else {}
    for name, value in fixed.items():
        if settings.setdefault(name, value) != value:
            problem = f"the generator '{bound.part.name}' needs `{name}: {value}`, and the recipe says {settings[name]}"
            where = finder.address("trainer", name)
            raise RecipeError(problem, where=where, hint="leave it out: it follows from the generator")
        finder.note(value, ("trainer", name), f"generator {bound.part.name}")
    return bound, plain, settings


def writes_answers(engine: Bound) -> bool:
    """Whether a stage of this engine ever has its model write: to learn from it, or to be judged by it."""
    return not isinstance(engine.target, Evaluates)
