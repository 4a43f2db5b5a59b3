"""Short forms of `model`: a checkpoint in place of the name of a part, as in ``model: Qwen/Qwen3-0.6B``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.protocols import PinsKnobs

FILES = (".gguf",)
"""Suffixes of model files."""


def resolve_model_name(spec: Mapping[str, Any], registry: Registry, folder: Path, where: str) -> dict[str, Any]:
    """Return the section `model` with the name of a part, and what that part pins.

    A name that finds a part is that part. Otherwise a folder (relative to the recipe or to the working directory), and
    any name with a slash, is short for ``{name: pretrained, path: …}``. A file is short for the part that is called
    like its suffix: ``model.gguf`` for ``{name: gguf, path: model.gguf}``.

    Args:
        spec: ``{name: …, knobs…}``.
        registry: The parts.
        folder: That of the recipe.
        where: Address, for errors.

    Raises:
        RecipeError: The name is neither.
    """
    name = spec["name"]
    try:
        part = registry.find("rlm_models", name, where=where)
    except RecipeError as error:
        path = _checkpoint(name, registry, folder, where)
        if path is None:
            hint = f"{error.hint} ".lstrip() + f"a hub name without a slash: `{{name: pretrained, path: {name}}}`"
            raise RecipeError(error.problem, where=where, allowed=error.allowed, hint=hint) from error.__cause__
        part = registry.find("rlm_models", part_of(path), where=where)
        spec = {**spec, "name": part.name, "path": path}
    return dict(part.target.pin(dict(spec)) if isinstance(part.target, PinsKnobs) else spec)


def part_of(path: str) -> str:
    """Return the name of the model part that reads a checkpoint: the suffix of a file, else `pretrained`.

    >>> part_of("./weights.gguf"), part_of("Qwen/Qwen3-0.6B")
    ('gguf', 'pretrained')
    """
    return Path(path).suffix[1:] if path.endswith(FILES) else "pretrained"


def _checkpoint(name: str, registry: Registry, folder: Path, where: str) -> str | None:
    for path in (folder / name, Path(name)):
        if path.is_dir() or (path.is_file() and path.suffix in FILES):
            return str(path.resolve())
    if name.startswith((".", "/", "~")) or name.endswith(FILES):
        allowed = "a folder written by `save_pretrained`, or a .gguf file"
        raise RecipeError(f"there is no folder or file '{name}'", where=where, allowed=allowed)
    plugin, slash, _ = name.partition("/")
    return name if slash and plugin not in registry.plugins else None
