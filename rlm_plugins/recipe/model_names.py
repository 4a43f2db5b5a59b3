"""``model: Qwen/Qwen3-0.6B``: a checkpoint named where a part could be named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry


def in_full(spec: Mapping[str, Any], registry: Registry, folder: Path, where: str) -> dict[str, Any]:
    """The model section with a part's name in it.

    A name that finds a part is that part. Else a folder (beside the recipe, or from the working directory) and any
    name with a slash is short for ``{name: pretrained, path: …}``.

    Args:
        spec: ``{name: …, knobs…}``.
        registry: Who knows the parts.
        folder: Where the recipe lies.
        where: Address, for errors.

    Raises:
        RecipeError: The name is neither.
    """
    name = spec["name"]
    try:
        registry.find("rlm_models", name, where=where)
        return dict(spec)
    except RecipeError as error:
        path = _checkpoint(name, registry, folder, where)
        if path is None:
            hint = f"{error.hint} ".lstrip() + f"a hub name without a slash is `{{name: pretrained, path: {name}}}`"
            raise RecipeError(error.problem, where=where, allowed=error.allowed, hint=hint) from error.__cause__
    return {**spec, "name": "pretrained", "path": path}


def _checkpoint(name: str, registry: Registry, folder: Path, where: str) -> str | None:
    for place in (folder / name, Path(name)):
        if place.is_dir():
            return str(place.resolve())
    if name.startswith((".", "/", "~")):
        raise RecipeError(f"there is no folder '{name}'", where=where, allowed="a folder written by `save_pretrained`")
    plugin, slash, _ = name.partition("/")
    return name if slash and plugin not in registry.plugins else None
