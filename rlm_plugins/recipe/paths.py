"""Addresses in a recipe: of its values, of entries of its lists, and of the files and functions that it names."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rlm_plugins.errors import RecipeError, nearest

Path = tuple[str | int, ...]
"""Keys of mappings and positions in lists, from the top of the document."""


def format_path(path: Path) -> str:
    """Return an address as text.

    >>> format_path(("stages", 1, "rewards", 0, "weight"))
    'stages[1].rewards[0].weight'
    """
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


def parse_path(text: str) -> tuple[str, ...]:
    """Return the steps of an address on the command line, where ``rewards[0]`` and ``rewards.0`` are the same.

    >>> parse_path("stages[1].rewards.accuracy.weight")
    ('stages', '1', 'rewards', 'accuracy', 'weight')
    """
    return tuple(re.sub(r"\[(\d+)\]", r".\1", text.strip()).split("."))


def nodes(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield `value` and every value in it, with its address.

    >>> [path for path, _ in nodes({"a": [1, {}]})]
    [(), ('a',), ('a', 0), ('a', 1)]
    """
    yield path, value
    steps: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    for step, inner in steps:
        yield from nodes(inner, (*path, step))


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the values that contain no other, with their addresses; an empty list or mapping is one.

    >>> list(leaves({"a": [1, {}], "b": None}))
    [(('a', 0), 1), (('a', 1), {}), (('b',), None)]
    """
    return ((step, inner) for step, inner in nodes(value, path) if not inner or not isinstance(inner, dict | list))


def position(entries: Sequence[Any], step: str, where: str = "") -> int:
    """Return the position of the list entry that `step` names: a position, a label, or a part.

    >>> position([{"name": "kl"}, {"name": "length", "as": "short"}], "short")
    1
    """
    if step.isdecimal() and len(step) < 6 and int(step) < len(entries):
        return int(step)
    names = [entry_name(entry) for entry in entries]
    if names.count(step) == 1:
        return names.index(step)
    problem = f"several entries have the name '{step}'" if step in names else f"unknown entry '{step}'"
    allowed = ", ".join(f"{i} ({name})" if name else str(i) for i, name in enumerate(names))
    hint = nearest(step, names) or "a mapping overrides entries; a list replaces them: `[{name: …}]`"
    raise RecipeError(problem, where=where, allowed=allowed or "nothing: the list is empty", hint=hint)


def entry_name(entry: Any) -> str:
    """Return the label or the name of an entry; empty without either."""
    return str(entry.get("as") or entry.get("name") or "") if isinstance(entry, dict) else ""


PATH_KNOBS = ("path", "test_path")
"""Names of the knobs that hold a file or folder, or a name on the hub."""


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


_FILE = re.compile(r"(?P<file>\S+\.py):(?P<name>[A-Za-z_][\w.]*)")


def absolute_addresses(value: Any, folder: pathlib.Path) -> Any:
    """Return a value of a recipe with absolute file addresses, so that the recipe of a run loads from any folder."""
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


@contextmanager
def prefixed_address(where: str) -> Iterator[None]:
    """Prepend `where` to the address of a RecipeError that is raised in the block."""
    try:
        yield
    except RecipeError as error:
        raise error.at(".".join(filter(None, (where, error.where)))) from error.__cause__
