"""Paths in a recipe: relative to the recipe, on the command line to the working directory."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Container, Mapping
from typing import Any

KNOBS = ("path", "train_path", "test_path")
"""Names of the knobs that hold a file or folder, or a name on the hub."""
FOLDER = "image_folder"
"""Name of the knob that holds a folder, by default that of the recipe."""


def absolute_path(value: str, folder: pathlib.Path) -> str:
    """Return a path absolute; a name that is no path unchanged.

    Paths start with ``./`` or ``../``, or exist in `folder`. A hub name does neither.

    >>> absolute_path("Qwen/Qwen3-0.6B", pathlib.Path("/nowhere"))
    'Qwen/Qwen3-0.6B'
    >>> absolute_path("../data.jsonl", pathlib.Path("/home/me/recipes"))
    '/home/me/data.jsonl'
    """
    path = pathlib.Path(value).expanduser()
    if value.startswith("~") or path.is_absolute():
        return str(path)
    is_path = value in (".", "..") or value.startswith(("./", "../")) or (bool(value) and (folder / path).exists())
    return str((folder / path).resolve()) if is_path else value


def absolute_knobs(
    knobs: Mapping[str, Any], folder_of: Callable[[str], pathlib.Path], declared: Container[str] = ()
) -> dict[str, Any]:
    """Return the knobs of a part with the paths absolute.

    Args:
        knobs: As the recipe gives them.
        folder_of: Knob → the folder to which its value is relative.
        declared: All knobs of the part.
    """
    paths = {name: knobs[name] for name in KNOBS if isinstance(knobs.get(name), str)}
    absolute = {name: absolute_path(value, folder_of(name)) for name, value in paths.items()}
    if FOLDER in declared:
        absolute[FOLDER] = str((folder_of(FOLDER) / pathlib.Path(knobs.get(FOLDER) or ".").expanduser()).resolve())
    return {**knobs, **absolute}


def absolute_settings(settings: Mapping[str, Any], folder_of: Callable[[str], pathlib.Path]) -> dict[str, Any]:
    """Return trainer settings in which paths that start with ``./`` or ``../`` are absolute (`deepspeed`, …)."""
    paths = {
        name: absolute_path(value, folder_of(name))
        for name, value in settings.items()
        if isinstance(value, str) and value.startswith(("./", "../"))
    }
    return {**settings, **paths}
