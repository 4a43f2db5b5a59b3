"""x: a toy environment in which one answer has many notations (hook ``rlm_environments``)."""

from __future__ import annotations

import hashlib
import random
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]

DENOMINATORS = (2, 4, 5, 8)


def fraction_sums(*, train_rows: Count = 4096, slip: Share = 0.0, seed: int = 0) -> EnvironmentSpec:
    """Build sums of two fractions with one-digit numerators and denominators: ``3/4+2/4=?`` → \\frac{5}{4}.

    Columns: ``prompt``, ``answer`` (in lowest terms, as LaTeX) and ``demonstration``: a box with ``5/4`` or, equally
    often, ``1.25``; with probability `slip` its numerator is one too high. A reward that compares strings accepts
    neither. One problem in eight, chosen by its hash, is never trained on; these are the test examples.

    >>> spec = fraction_sums(train_rows=1)
    >>> len(spec.test), spec.test[0]["prompt"][0]["content"], spec.test[0]["answer"]
    (44, '1/2+6/2=?', '\\\\frac{7}{2}')
    """
    problems = [(a, b, c) for c in DENOMINATORS for a in range(1, 10) for b in range(1, 10)]
    held_out = [problem for problem in problems if _is_held_out(*problem)]
    training = [problem for problem in problems if not _is_held_out(*problem)]
    rng = random.Random(f"fraction sums {seed}")
    return EnvironmentSpec(
        train=[_example(*rng.choice(training), rng, slip) for _ in range(train_rows)],
        test=[_example(*problem, rng, 0.0) for problem in held_out],
    )


def _is_held_out(a: int, b: int, c: int) -> bool:
    """Return True for one problem in eight, by a hash that ignores the order of the summands."""
    name = f"{min(a, b)}+{max(a, b)} over {c}"
    return hashlib.blake2b(name.encode(), digest_size=1).digest()[0] < 32


def _example(a: int, b: int, c: int, rng: random.Random, slip: float) -> dict[str, object]:
    total = Fraction(a + b, c)
    numerator = a + b + (rng.random() < slip)
    notation = f"{numerator}/{c}" if rng.random() < 0.5 else f"{numerator / c:g}"
    answer = str(total) if total.denominator == 1 else f"\\frac{{{total.numerator}}}{{{total.denominator}}}"
    return {
        "prompt": [{"role": "user", "content": f"{a}/{c}+{b}/{c}=?"}],
        "answer": answer,
        "demonstration": f"\\boxed{{{notation}}}",
    }
