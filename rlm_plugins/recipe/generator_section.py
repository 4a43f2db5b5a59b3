"""The section `generator`: decoding of the policy, and the trainer settings that it fixes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.part_lookup import Finder
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Evaluates, SetsTrainer

REFERENCE = "transformers"
"""The generator of a recipe with `none`, and without the section if the default is not installed."""
PLUGIN, DEFAULT, PACKAGE = "fast", "fast/fast", "rlm-fast"
"""The default generator, with its plugin and the package that has it."""
INSTALL = f"pip install ./plugins/{PACKAGE}"
"""The command that installs the default generator from a checkout."""


def generator_of(finder: Finder, body: Mapping[str, Any]) -> tuple[Bound, dict[str, Any], dict[str, Any]]:
    """Return the part, its section as plain data, and `trainer:` with the settings that the part fixes.

    Raises:
        RecipeError: An unknown part, a wrong knob, or a conflict with `trainer:`.
    """
    installed = finder.registry.offers("rlm_generators", DEFAULT)
    name = DEFAULT if installed and "generator" not in body else REFERENCE
    spec = body.get("generator") or {"name": name}
    if PLUGIN not in finder.registry.plugins and spec["name"] in (DEFAULT, DEFAULT.rpartition("/")[2]):
        _refuse_missing(finder, spec["name"])
    bound, plain = finder.part("generator", spec, ("generator",))
    settings = dict(body.get("trainer") or {})
    target: Any = bound.target
    fixed = target.trainer_settings if isinstance(target, SetsTrainer) else {}
    for name, value in fixed.items():
        if settings.setdefault(name, value) != value:
            problem = f"the generator '{bound.part.name}' requires `{name}: {value}`, got {settings[name]}"
            where = finder.address("trainer", name)
            raise RecipeError(problem, where=where, hint="leave it out: it follows from the generator")
        finder.record_origin(value, ("trainer", name), f"generator {bound.part.name}")
    return bound, plain, settings


def _refuse_missing(finder: Finder, name: str) -> None:
    """Raise RecipeError if no other plugin has the default generator that a recipe names."""
    if PLUGIN in finder.registry.blocked or finder.registry.offers("rlm_generators", name):
        return
    problem = f"the generator '{name}' requires the package {PACKAGE}, which is not installed"
    raise RecipeError(problem, where=finder.address("generator"), hint=f"{INSTALL}, or leave out `generator`")


def generates(trainer: Bound) -> bool:
    """Return True if a stage of this trainer generates completions, in training or evaluation."""
    return not isinstance(trainer.target, Evaluates)
