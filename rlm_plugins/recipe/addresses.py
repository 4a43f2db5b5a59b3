"""Addresses of functions in the values of a recipe: ``./scores.py:compute_score``."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import Any

from rlm_plugins.recipe.paths import leaves

_FILE = re.compile(r"(?P<file>\S+\.py):(?P<name>[A-Za-z_][\w.]*)")


def absolute_addresses(value: Any, folder: pathlib.Path) -> Any:
    """Return a value of a recipe with absolute file addresses, so that the recipe of a run loads from any folder.

    Args:
        value: A section, or a part of one.
        folder: Folder of the recipe. An address whose file does not exist there is unchanged.
    """
    if isinstance(value, dict):
        return {key: absolute_addresses(entry, folder) for key, entry in value.items()}
    if isinstance(value, list):
        return [absolute_addresses(entry, folder) for entry in value]
    match = _FILE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    file = folder / pathlib.Path(match["file"]).expanduser()
    return f"{file.resolve()}:{match['name']}" if file.is_file() else value


def addressed_files(value: Any) -> Iterator[tuple[pathlib.Path, str]]:
    """Yield (file, address) of every address of a file that exists."""
    for _, entry in leaves(value):
        match = _FILE.fullmatch(entry) if isinstance(entry, str) else None
        file = None if match is None else pathlib.Path(match["file"]).expanduser()
        if file is not None and file.is_file():
            yield file.resolve(), entry


def package_addresses(value: Any, package: str) -> tuple[str, ...]:
    """Return the texts that are addresses in a package, sorted.

    >>> package_addresses({"rewards": [{"function": "trl.rewards:f"}, {"function": "os:system"}]}, "trl")
    ('trl.rewards:f',)
    """
    addresses = {text for _, text in leaves(value) if isinstance(text, str) and ":" in text}
    return tuple(sorted(text for text in addresses if text.partition(":")[0].partition(".")[0] == package))
