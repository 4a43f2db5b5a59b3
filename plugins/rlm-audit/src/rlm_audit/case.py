"""A generated answer with its verdict, and a family of generators."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_SIZE = 6
"""Largest size that a generator is called with."""


@dataclass(frozen=True)
class Case:
    """One answer to one example, right or wrong by construction.

    Args:
        columns: Columns of the example that rewards may name, without ``prompt``.
        answer: Text of the answer, without the form around it.
        is_right: Whether a reward must pay it.
        prompt: Prompt of the example.
        is_whole: Whether `answer` is the whole completion, so that no form is put around it.
    """

    columns: Mapping[str, Any]
    answer: str
    is_right: bool
    prompt: str = "Give the answer."
    is_whole: bool = False


Generator = Callable[[random.Random, int], Case | None]
"""Function of a random state and a size from 1 to MAX_SIZE. It returns None if this draw has no such case."""

Scorer = Callable[[Sequence[Case], Sequence[str]], list[float | None]]
"""Function of cases and completions that returns a score, or None, per case."""


@dataclass(frozen=True)
class Family:
    """Generators of one subject, by the name of their class of cases.

    Args:
        generators: Class → generator. A generator returns right cases only, or wrong cases only.
        form: Text of a completion with ``{answer}``.
    """

    generators: Mapping[str, Generator]
    form: str

    def completion(self, case: Case, form: str = "") -> str:
        """Return the completion of a case, in `form` or the family's own."""
        return case.answer if case.is_whole else (form or self.form).replace("{answer}", case.answer)
