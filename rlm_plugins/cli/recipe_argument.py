"""What a command is pointed at: a recipe, or the folder of a run, which holds the recipe it was run with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe import document as recipes
from rlm_plugins.registry import Registry


def read(source: Path, overrides: Sequence[str] | None) -> tuple[Recipe, Registry]:
    """The recipe and the registry it asks for.

    Args:
        source: A YAML file, or a folder with a ``recipe.yaml``.
        overrides: ``key=value``.

    Raises:
        RecipeError: It cannot be read.
        PluginError: A file it loads cannot be.
    """
    recipe = recipes.load(source / "recipe.yaml" if source.is_dir() else source, overrides or ())
    return recipe, Registry(recipe.load, recipe.block)
