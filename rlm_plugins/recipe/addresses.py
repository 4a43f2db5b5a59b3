"""Addresses of functions in the values of a recipe: ``./scores.py:compute_score``."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import Any

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
    if isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from addressed_files(entry)
    elif isinstance(value, str) and (match := _FILE.fullmatch(value)) is not None:
        file = pathlib.Path(match["file"]).expanduser()
        if file.is_file():
            yield file.resolve(), value


def package_addresses(value: Any, package: str) -> tuple[str, ...]:
    """Return the texts that are addresses in a package, sorted.

    >>> package_addresses({"rewards": [{"function": "trl.rewards:f"}, {"function": "os:system"}]}, "trl")
    ('trl.rewards:f',)
    """
    if isinstance(value, dict | list | tuple):
        parts = value.values() if isinstance(value, dict) else value
        return tuple(sorted({address for item in parts for address in package_addresses(item, package)}))
    module, colon, _ = value.partition(":") if isinstance(value, str) else ("", "", "")
    return (value,) if colon and module.partition(".")[0] == package else ()
