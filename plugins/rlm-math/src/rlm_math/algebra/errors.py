"""The reasons why a text has no value. Importing this loads no python-flint."""

from __future__ import annotations


class UnreadableError(Exception):
    """A text that is no mathematics, or has more than one reading."""


class UndefinedError(Exception):
    """An expression without a value: 1/0 or 0^0."""


class UndecidedError(UndefinedError):
    """An expression with a value that cannot be computed within the limits."""
