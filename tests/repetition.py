"""Repetition that `make test-full` runs completely and `make test` samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def one_in(count: int, values: Sequence[Any]) -> list[Any]:
    """Return the values, or tuples of them, as pytest parameters; all but the first of each `count` are `full`."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=pytest.mark.full if number % count else ()) for number, row in enumerate(rows)]
