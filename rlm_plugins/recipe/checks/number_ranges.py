"""Check of every number of a recipe against the range of its key, and of pairs of numbers against their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlm_plugins.algorithm import SLOTS
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.paths import Path, format_path
from rlm_plugins.recipe.ranges import is_number, problem
from rlm_plugins.recipe.sections import SECTIONS

_SECTIONS = {*SECTIONS, *SLOTS, "lora", "generation_kwargs"}
ORDERED = (
    ("low", "high"),
    ("lowest", "highest"),
    ("minimum", "maximum"),
    ("min_decay", "max_decay"),
    ("min_digits", "digits"),
    ("min_carries", "max_carries"),
)
"""Pairs of knobs of one part of which the first is not larger than the second."""


def check_values(body: Mapping[str, Any], stage_path: Path) -> None:
    """Check every number of a resolved stage.

    Args:
        body: The stage as plain data, defaults included.
        stage_path: Its address in the recipe.

    Raises:
        RecipeError: The first number that is out of range.
    """
    for path, keyed in _mappings(body, stage_path):
        for key, value in keyed.items():
            for inner_path, number in _numbers(key, value, (*path, key)):
                text, hint = problem(key, number)
                if text:
                    raise RecipeError(text, where=format_path(inner_path), hint=hint)
        for first, second in ORDERED:
            low, high = keyed.get(first), keyed.get(second)
            if is_number(low) and is_number(high) and low > high:
                allowed = f"`{first}` not larger than `{second}`"
                raise RecipeError(f"expected {allowed}, got {low} and {high}", where=format_path((*path, first)))


def _mappings(body: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield sections, parts and the adapter; not the values of knobs, whose keys are labels of the user."""
    yield path, body
    for key, value in body.items():
        entries = enumerate(value) if isinstance(value, list) else [(None, value)]
        for number, inner in entries if key in _SECTIONS else ():
            if isinstance(inner, Mapping):
                yield from _mappings(inner, (*path, key) if number is None else (*path, key, number))


def _numbers(key: str, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield a number, those of a list, the ends of a schedule, or the values of a pattern of modules."""
    if isinstance(value, list):
        yield from (((*path, number), inner) for number, inner in enumerate(value))
    elif isinstance(value, Mapping):
        is_pattern = key.endswith("_pattern")
        yield from (((*path, name), inner) for name, inner in value.items() if is_pattern or name in ("from", "to"))
    else:
        yield path, value
