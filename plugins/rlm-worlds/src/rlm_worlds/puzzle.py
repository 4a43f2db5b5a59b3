"""A puzzle with its solution, and the held-out part of all puzzles."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Puzzle:
    """A generated puzzle.

    Args:
        question: Its text, with the format of an answer.
        answer: A solution, verified when it was generated.
        task: What the score needs, as plain data.
    """

    question: str
    answer: str
    task: Mapping[str, Any]


def is_held_out(question: str) -> bool:
    """Return True for one question in eight, by its hash."""
    return hashlib.blake2b(question.encode(), digest_size=1).digest()[0] < 32
