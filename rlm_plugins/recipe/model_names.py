"""Short forms of `model`: a checkpoint in place of the name of a part, as in ``model: Qwen/Qwen3-0.6B``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlm_plugins.data.model_packages import pinned
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry


def resolve_model_name(spec: Mapping[str, Any], registry: Registry, folder: Path, where: str) -> dict[str, Any]:
    """Return the section `model` with the name of a part, and a package with its version and hash.

    A name that finds a part is that part. Otherwise a folder or a ``.gguf`` file (relative to the recipe or to the
    working directory), and any name with a slash, is short for ``{name: pretrained, path: …}``.

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
        registry.find("rlm_models", name, where=where)
    except RecipeError as error:
        path = _checkpoint(name, registry, folder, where)
        if path is None:
            hint = f"{error.hint} ".lstrip() + f"a hub name without a slash: `{{name: pretrained, path: {name}}}`"
            raise RecipeError(error.problem, where=where, allowed=error.allowed, hint=hint) from error.__cause__
        spec = {**spec, "name": "pretrained", "path": path}
    if isinstance(spec.get("package"), str):
        pins = pinned(spec["package"], spec.get("sha256"))
        spec = {**spec, "package": pins.requirement, "sha256": pins.sha256}
    return dict(spec)


def _checkpoint(name: str, registry: Registry, folder: Path, where: str) -> str | None:
    for path in (folder / name, Path(name)):
        if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
            return str(path.resolve())
    if name.startswith((".", "/", "~")) or name.endswith(".gguf"):
        allowed = "a folder written by `save_pretrained`, or a .gguf file"
        raise RecipeError(f"there is no folder or file '{name}'", where=where, allowed=allowed)
    plugin, slash, _ = name.partition("/")
    return name if slash and plugin not in registry.plugins else None
