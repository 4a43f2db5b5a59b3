"""Source code of tests, parsed."""

from __future__ import annotations

import ast


class BadTests(Exception):
    """Tests that are malformed or test nothing; the message gives the reason."""


def parse_source(source: str, what: str) -> ast.Module:
    """Parse test code."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise BadTests(f"{what} is not Python: {error}") from None
