"""Paths in a recipe: relative to the recipe, on the command line to the working directory."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

KNOB = "path"
"""Name of the knobs that hold a file or folder, or a name on the hub."""


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


def absolute_knobs(knobs: Mapping[str, Any], folder_of: Callable[[str], pathlib.Path]) -> dict[str, Any]:
    """Return the knobs of a part with the path absolute.

    Args:
        knobs: As the recipe gives them.
        folder_of: Knob → the folder to which its value is relative.
    """
    if not isinstance(knobs.get(KNOB), str):
        return dict(knobs)
    return {**knobs, KNOB: absolute_path(knobs[KNOB], folder_of(KNOB))}


def absolute_settings(settings: Mapping[str, Any], folder_of: Callable[[str], pathlib.Path]) -> dict[str, Any]:
    """Return settings of the trainer with paths that start with ``./`` or ``../`` absolute (`deepspeed`, …)."""
    return {
        name: absolute_path(value, folder_of(name))
        if isinstance(value, str) and value.startswith(("./", "../"))
        else value
        for name, value in settings.items()
    }
