"""Addresses of values in a recipe: ``stages[1].trainer.learning_rate``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

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
