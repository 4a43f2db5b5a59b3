"""Addresses of errors: a part knows its knobs, not where it stands in a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlm_plugins.errors import RecipeError


@contextmanager
def stands_at(where: str) -> Iterator[None]:
    """Prefix the address of errors inside the block; a part knows its knobs, not its address."""
    try:
        yield
    except RecipeError as error:
        place = ".".join(filter(None, (where, error.where)))
        raise RecipeError(error.problem, where=place, allowed=error.allowed, hint=error.hint) from error.__cause__
