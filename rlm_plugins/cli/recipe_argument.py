"""The argument RECIPE of a command: a recipe file, or the folder of a run with the recipe it was started from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rlm_plugins.cli.trust import require_trust
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe import Recipe, yaml_strict
from rlm_plugins.recipe import document as recipes
from rlm_plugins.registry import Registry
from rlm_plugins.run.resume import check_code, check_links


def read(source: Path, overrides: Sequence[str] | None, allow_changed: Collection[str] = ()) -> tuple[Recipe, Registry]:
    """Return a recipe and a registry with the plugins it loads.

    Args:
        source: A YAML file, or a folder with a ``recipe.yaml``.
        overrides: ``key=value``.
        allow_changed: Keys that may differ from the start of a run.

    Raises:
        RecipeError: The recipe cannot be read.
        PluginError: A plugin file that it loads cannot be imported.
        RlmError: It runs code that the user does not trust, or that is not the code of the run.
    """
    is_run = source.is_dir()
    if is_run:
        check_links(source)
        source = source / "recipe.yaml"
    recipe = recipes.load(source, overrides or ())
    if is_run:
        check_code(source.parent, recipe, allow_changed)
    require_trust(recipe, is_run=is_run)
    return recipe, Registry(recipe.load, recipe.block)


def recorded(folder: Path, command: str) -> Any:
    """Return the resolved recipe of a run as plain data, without composing it.

    Args:
        folder: The folder of the run.
        command: A correct command, for the hint.

    Raises:
        RlmError: The folder is not that of a run.
    """
    check_links(folder)
    try:
        return yaml_strict.read(folder / "recipe.yaml").data
    except (OSError, RlmError) as error:
        problem = f"expected the folder of a run, found no readable recipe.yaml: {error}"
        raise RlmError(problem, where=str(folder), hint=f"`{command}`") from None
