"""x: a world small enough for a laptop in which one answer has many spellings (hook ``rlm_environments``)."""

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
    """Sums of two fractions with one digit above and the same below: ``3/4+2/4=?`` → \\frac{5}{4}.

    Columns: ``prompt``, ``answer`` (in lowest terms, as LaTeX) and ``demonstration``: a box with ``5/4``, or as often
    with ``1.25``; with probability `slip` its numerator is one too high. A reward that compares text finds neither
    right. One problem in eight, chosen by its hash, is never trained on; these are the test rows.

    >>> world = fraction_sums(train_rows=1)
    >>> len(world.test), world.test[0]["prompt"][0]["content"], world.test[0]["answer"]
    (44, '1/2+6/2=?', '\\\\frac{7}{2}')
    """
    problems = [(a, b, c) for c in DENOMINATORS for a in range(1, 10) for b in range(1, 10)]
    tested = [problem for problem in problems if _held_out(*problem)]
    trained = [problem for problem in problems if not _held_out(*problem)]
    draw = random.Random(f"fraction sums {seed}")
    return EnvironmentSpec(
        train=[_row(*draw.choice(trained), draw, slip) for _ in range(train_rows)],
        test=[_row(*problem, draw, 0.0) for problem in tested],
    )


def _held_out(a: int, b: int, c: int) -> bool:
    name = f"{min(a, b)}+{max(a, b)} over {c}"
    return hashlib.blake2b(name.encode(), digest_size=1).digest()[0] < 32


def _row(a: int, b: int, c: int, draw: random.Random, slip: float) -> dict[str, object]:
    total = Fraction(a + b, c)
    above = a + b + (draw.random() < slip)
    shown = f"{above}/{c}" if draw.random() < 0.5 else f"{above / c:g}"
    answer = str(total) if total.denominator == 1 else f"\\frac{{{total.numerator}}}{{{total.denominator}}}"
    return {
        "prompt": [{"role": "user", "content": f"{a}/{c}+{b}/{c}=?"}],
        "answer": answer,
        "demonstration": f"\\boxed{{{shown}}}",
    }
