"""Addresses of errors: a part raises with its knob, and the recipe adds the path to the part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlm_plugins.errors import RecipeError


@contextmanager
def stands_at(where: str) -> Iterator[None]:
    """Prefix the address of errors inside the block, since a part raises with its knob alone."""
    try:
        yield
    except RecipeError as error:
        place = ".".join(filter(None, (where, error.where)))
        raise RecipeError(error.problem, where=place, allowed=error.allowed, hint=error.hint) from error.__cause__
