"""x: a world in which a tiny model learns to write programs (hook ``rlm_environments``)."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from itertools import product
from typing import Annotated

from pydantic import Field

from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]

STEPS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "add": ("x+{n}", lambda x, n: x + n),
    "less": ("x-{n}", lambda x, n: x - n),
    "times": ("x*{n}", lambda x, n: x * n),
    "mod": ("x%{n}", lambda x, n: x % n),
    "most": ("max(x,{n})", max),
}
"""Word → (its expression, what it does)."""
NUMBERS = range(2, 8)
TRIED = (-9, -2, 0, 1, 3, 5, 11, 40)

Step = tuple[str, int]


def code_drills(
    *, train_rows: Count = 4096, test_rows: Count = 100, slip: Share = 0.0, seed: int = 0
) -> EnvironmentSpec:
    """A function in two steps, told in words: ``add 3;mod 5`` → ``def f(x):``, ``x=x+3``, ``return x%5``.

    Columns: ``prompt``, ``tests`` (eight calls of f for `code_tests`, which needs ``unfenced: whole``) and
    ``demonstration``: with probability `slip` its second number is one too high, so that a supervised stage learns to
    write programs that mostly fail. One task in eight, chosen by its hash, is never trained on; the test rows are
    the first of these.

    >>> row = code_drills(train_rows=1, test_rows=1).test[0]
    >>> row["prompt"][0]["content"], row["demonstration"]
    ('mod 7;most 7', 'def f(x):\\n x=x%7\\n return max(x,7)')
    """
    steps = [*product(STEPS, NUMBERS)]
    tasks = [*product(steps, steps)]
    trained = [task for task in tasks if not _held_out(task)]
    tested = [task for task in tasks if _held_out(task)]
    random.Random("code drills").shuffle(tested)
    draw = random.Random(f"code drills {seed}")
    return EnvironmentSpec(
        train=[_row(*draw.choice(trained), draw.random() < slip) for _ in range(train_rows)],
        test=[_row(*task, False) for task in tested[:test_rows]],
    )


def _told(first: Step, second: Step) -> str:
    return f"{first[0]} {first[1]};{second[0]} {second[1]}"


def _held_out(task: tuple[Step, Step]) -> bool:
    return hashlib.blake2b(_told(*task).encode(), digest_size=1).digest()[0] < 32


def _row(first: Step, second: Step, slipped: bool) -> dict[str, object]:
    cases = [[[x], STEPS[second[0]][1](STEPS[first[0]][1](x, first[1]), second[1])] for x in TRIED]
    one, two = (STEPS[word][0].format(n=n) for word, n in (first, (second[0], second[1] + slipped)))
    return {
        "prompt": [{"role": "user", "content": _told(first, second)}],
        "tests": json.dumps({"calls": {"name": "f", "cases": cases}}),
        "demonstration": f"def f(x):\n x={one}\n return {two}",
    }
