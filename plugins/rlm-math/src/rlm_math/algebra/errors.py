"""The two reasons why a text has no value. Importing this loads no python-flint."""

from __future__ import annotations


class UnreadableError(Exception):
    """A text that is no mathematics, or has more than one reading."""


class UndefinedError(Exception):
    """An expression without a value: 1/0, 0^0, or one that cannot be computed within the limits."""
