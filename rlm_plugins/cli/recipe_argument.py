"""The argument RECIPE of a command: a recipe file, or the folder of a run with the recipe it was started from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe import document as recipes
from rlm_plugins.registry import Registry
from rlm_plugins.run.migration import migrate


def read(source: Path, overrides: Sequence[str] | None) -> tuple[Recipe, Registry]:
    """Return a recipe and a registry with the plugins it loads.

    Args:
        source: A YAML file, or a folder with a ``recipe.yaml``.
        overrides: ``key=value``.

    Raises:
        RecipeError: The recipe cannot be read.
        PluginError: A plugin file that it loads cannot be imported.
    """
    if source.is_dir():
        migrate(source)
        source = source / "recipe.yaml"
    recipe = recipes.load(source, overrides or ())
    return recipe, Registry(recipe.load, recipe.block)
