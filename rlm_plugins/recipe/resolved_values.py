"""A composed recipe with every value, and the origin of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.paths import format_path, leaves
from rlm_plugins.stage import Stage


def resolved(stages: Sequence[Stage], recipe: Recipe) -> dict[str, Any]:
    """Return a recipe with every value: it loads from any folder, and gives the same run."""
    plugins = {"load": [str(path) for path in recipe.load], "block": list(recipe.block)}
    plugins["packages"] = list(recipe.packages)
    non_empty = {key: value for key, value in plugins.items() if value}
    head = {"name": recipe.name, **({"plugins": non_empty} if non_empty else {})}
    bodies = [dict(stage.body) for stage in stages]
    return {**head, "stages": bodies} if recipe.stage_paths != [()] else {**head, **bodies[0]}


def explain_origins(recipe: Recipe, stages: Sequence[Stage]) -> list[tuple[str, Any, str]]:
    """Return (address, value, origin) of every value of the composed stages, in the order of the recipe.

    Origins: ``recipe.yaml line 12``, ``command line``, ``algorithm grpo``, ``default of clip``, ….
    """
    entries = []
    for stage, place in zip(stages, recipe.stage_paths, strict=True):
        for path, value in leaves(dict(stage.body), place):
            entries.append((format_path(path), value, recipe.origins.get(format_path(path), "default")))
    return entries
