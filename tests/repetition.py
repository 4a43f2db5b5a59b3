"""Repetition that `make test-full` runs completely and `make test` samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def one_in(count: int, values: Sequence[Any]) -> list[Any]:
    """Return the values as pytest parameters; all but the first of each `count` are marked `full`."""
    return [
        pytest.param(value, marks=pytest.mark.full if number % count else ()) for number, value in enumerate(values)
    ]
