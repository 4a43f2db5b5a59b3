"""Questions about numbers for a pre-trained chat model: an environment as a single file, beside its recipe."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Literal

from rlm_plugins import hookimpl
from rlm_plugins.specs import EnvironmentSpec

INSTRUCTION = "Answer with the number only."


def number_questions(
    *,
    task: Literal["largest", "product"] = "largest",
    instruction: str = INSTRUCTION,
    train_rows: int = 2048,
    test_rows: int = 64,
    seed: int = 0,
) -> EnvironmentSpec:
    """Return questions with one number as the answer: the largest of three numbers, or a product.

    Columns: ``prompt`` and ``answer``. "largest" has three different numbers from 10 to 99, "product" two factors from
    2 to 12. One question in four, chosen by a hash of its numbers in sorted order, is never in the training set;
    the test examples are drawn from these, each once. Of products there are few: at most 24 test examples.

    >>> number_questions(train_rows=1, test_rows=1).train[0]["prompt"][0]["content"]
    'Which is the largest of these numbers: 63, 15, 43? Answer with the number only.'
    """
    training = (numbers for numbers in _draw(task, f"train {seed}") if not _held_out(numbers))
    tests: dict[tuple[int, ...], None] = {}
    for numbers, _ in zip(_draw(task, "tests"), range(100 * test_rows), strict=False):
        if _held_out(numbers) and len(tests) < test_rows:
            tests.setdefault(numbers)
    train = [_row(task, numbers, instruction) for numbers, _ in zip(training, range(train_rows), strict=False)]
    return EnvironmentSpec(train=train, test=[_row(task, numbers, instruction) for numbers in tests])


def _draw(task: str, stream: str) -> Iterator[tuple[int, ...]]:
    rng = random.Random(stream)
    while True:
        yield tuple(rng.sample(range(10, 100), 3)) if task == "largest" else (rng.randint(2, 12), rng.randint(2, 12))


def _held_out(numbers: tuple[int, ...]) -> bool:
    return hashlib.blake2b(repr(sorted(numbers)).encode(), digest_size=1).digest()[0] < 64


def _row(task: str, numbers: tuple[int, ...], instruction: str) -> dict[str, object]:
    if task == "largest":
        question, answer = f"Which is the largest of these numbers: {', '.join(map(str, numbers))}?", max(numbers)
    else:
        question, answer = f"What is {numbers[0]} times {numbers[1]}?", numbers[0] * numbers[1]
    return {"prompt": [{"role": "user", "content": f"{question} {instruction}".strip()}], "answer": str(answer)}


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Register the environment."""
    return {"number_questions": number_questions}
