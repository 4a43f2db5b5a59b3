"""The folder of a run, by its name: a new one, or the one to resume."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rlm_plugins.durable.files import file_errors
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.run.folder import SUMMARY


def fresh_folder(path: Path) -> Path:
    """Return `path`, or `path-2`, … : a folder without a run, so that no run is ever overwritten.

    Raises:
        RlmError: `path` is a file, or cannot be read.
    """
    with file_errors(path, "used"):
        if os.path.lexists(path) and not path.is_dir():
            actual = "a link to nothing" if path.is_symlink() and not path.exists() else "a file"
            raise RlmError(f"expected a folder, got {actual}", where=str(path), hint="choose another --out")
        folder, number = path, 1
        while os.path.lexists(folder) and not _is_empty(folder):
            number += 1
            folder = path.with_name(f"{path.name}-{number}")
    return folder


def folder_to_resume(runs: Path, name: str) -> Path:
    """Return the folder of the newest unfinished run named `name` (or `name-2`, …).

    Raises:
        RecipeError: All runs of that name are finished.
    """
    names = re.compile(rf"{re.escape(name)}(-\d+)?")
    folders = [recipe.parent for recipe in runs.glob("*/recipe.yaml") if names.fullmatch(recipe.parent.name)]
    unfinished = [folder for folder in folders if not (folder / SUMMARY).exists()]
    if folders and not unfinished:
        newest = max(folders, key=lambda folder: folder.stat().st_mtime)
        raise RecipeError(
            "nothing to resume: this run is finished", where=str(newest), hint="leave --resume out to start another one"
        )
    if not unfinished:
        raise RecipeError(
            "nothing to resume: no unfinished run of this recipe",
            where=str(runs / name),
            hint="leave --resume out to start one, or name the folder with --out",
        )
    return max(unfinished, key=lambda folder: folder.stat().st_mtime)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())
