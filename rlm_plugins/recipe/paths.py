"""Addresses of values in a recipe: ``stages[1].trainer.learning_rate``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
"""Keys of mappings and positions in lists, from the top of the document."""


def spell(path: Path) -> str:
    """Return an address as text.

    >>> spell(("stages", 1, "rewards", 0, "weight"))
    'stages[1].rewards[0].weight'
    """
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


def split(text: str) -> tuple[str, ...]:
    """Return the steps of an address on the command line, where ``rewards[0]`` and ``rewards.0`` are the same.

    >>> split("stages[1].rewards.accuracy.weight")
    ('stages', '1', 'rewards', 'accuracy', 'weight')
    """
    return tuple(re.sub(r"\[(\d+)\]", r".\1", text.strip()).split("."))


def nodes(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield `value` and every value in it, with its address.

    >>> [path for path, _ in nodes({"a": [1, {}]})]
    [(), ('a',), ('a', 0), ('a', 1)]
    """
    yield path, value
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in inside:
        yield from nodes(inner, (*path, step))


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the values that contain no other, with their addresses; an empty list or mapping is one.

    >>> list(leaves({"a": [1, {}], "b": None}))
    [(('a', 0), 1), (('a', 1), {}), (('b',), None)]
    """
    return ((step, inner) for step, inner in nodes(value, path) if not inner or not isinstance(inner, dict | list))
