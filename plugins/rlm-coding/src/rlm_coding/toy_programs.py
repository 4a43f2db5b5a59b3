"""x: a toy environment in which a tiny model learns to write programs (hook ``rlm_environments``)."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from itertools import product

from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.specs import EnvironmentSpec

STEPS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "add": ("x+{n}", lambda x, n: x + n),
    "less": ("x-{n}", lambda x, n: x - n),
    "times": ("x*{n}", lambda x, n: x * n),
    "mod": ("x%{n}", lambda x, n: x % n),
    "most": ("max(x,{n})", max),
}
"""Word → (its expression, its function)."""
NUMBERS = range(2, 8)
TEST_INPUTS = (-9, -2, 0, 1, 3, 5, 11, 40)

Step = tuple[str, int]


def code_drills(
    *, train_rows: Count = 4096, test_rows: Count = 100, slip: Share = 0.0, seed: int = 0
) -> EnvironmentSpec:
    """Build two-step functions described in words: ``add 3;mod 5`` → ``def f(x):``, ``x=x+3``, ``return x%5``.

    Columns: ``prompt``, ``tests`` (eight calls of f for `code_tests`, which requires ``unfenced: whole``) and
    ``demonstration``. With probability `slip` its second number is one too high, so that SFT on it learns programs that
    mostly fail. One task in eight, chosen by its hash, is never trained on; the test examples are the first of these.

    >>> example = code_drills(train_rows=1, test_rows=1).test[0]
    >>> example["prompt"][0]["content"], example["demonstration"]
    ('mod 7;most 7', 'def f(x):\\n x=x%7\\n return max(x,7)')
    """
    steps = [*product(STEPS, NUMBERS)]
    tasks = [*product(steps, steps)]
    training = [task for task in tasks if not _is_held_out(task)]
    held_out = [task for task in tasks if _is_held_out(task)]
    random.Random("code drills").shuffle(held_out)
    rng = random.Random(f"code drills {seed}")
    return EnvironmentSpec(
        train=[_example(*rng.choice(training), rng.random() < slip) for _ in range(train_rows)],
        test=[_example(*task, False) for task in held_out[:test_rows]],
    )


def _description(first: Step, second: Step) -> str:
    return f"{first[0]} {first[1]};{second[0]} {second[1]}"


def _is_held_out(task: tuple[Step, Step]) -> bool:
    """Return True for one task in eight, by its hash."""
    return hashlib.blake2b(_description(*task).encode(), digest_size=1).digest()[0] < 32


def _example(first: Step, second: Step, has_error: bool) -> dict[str, object]:
    cases = [[[x], STEPS[second[0]][1](STEPS[first[0]][1](x, first[1]), second[1])] for x in TEST_INPUTS]
    first_line, last_line = (STEPS[word][0].format(n=n) for word, n in (first, (second[0], second[1] + has_error)))
    return {
        "prompt": [{"role": "user", "content": _description(first, second)}],
        "tests": json.dumps({"calls": {"name": "f", "cases": cases}}),
        "demonstration": f"def f(x):\n x={first_line}\n return {last_line}",
    }
