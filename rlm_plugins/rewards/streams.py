"""Standard streams: comparison, and reopening after a reward has closed one."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

NAMES = ("stdout", "stderr")
_copies: dict[int, int] = {}
"""Descriptor → a copy of it, from which it is reopened."""


def current() -> list[Any]:
    """Return the streams; copies of their descriptors are made once."""
    for number in (1, 2):
        if number not in _copies and _is_open(number):
            _copies[number] = os.dup(number)
    return [getattr(sys, name) for name in NAMES]


def unchanged(before: list[Any], after: list[Any]) -> bool:
    """Return True if these are the same streams, all of them open."""
    is_same = all(old is new for old, new in zip(before, after, strict=True))
    return is_same and not any(_is_closed(stream) for stream in after) and all(map(_is_open, _copies))


def restore(before: list[Any]) -> None:
    """Reopen descriptors and streams that were closed, also in `before`, and set the streams."""
    for number, copy in _copies.items():
        if not _is_open(number):
            os.dup2(copy, number)
    for index, (name, number, stream) in enumerate(zip(NAMES, (1, 2), tuple(before), strict=True)):
        if _is_closed(stream) and number in _copies:
            raw = io.BufferedWriter(io.FileIO(number, "wb", closefd=False))
            before[index] = io.TextIOWrapper(raw, encoding="utf-8", errors="replace", line_buffering=True)
        setattr(sys, name, before[index])


def _is_closed(stream: Any) -> bool:
    return stream is None or bool(getattr(stream, "closed", False))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
