"""Addresses of errors: a part raises with the address of its knob, and the recipe prepends that of the part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlm_plugins.errors import RecipeError


@contextmanager
def prefixed_address(where: str) -> Iterator[None]:
    """Prepend `where` to the address of a RecipeError that is raised in the block."""
    try:
        yield
    except RecipeError as error:
        address = ".".join(filter(None, (where, error.where)))
        raise RecipeError(error.problem, where=address, allowed=error.allowed, hint=error.hint) from error.__cause__
