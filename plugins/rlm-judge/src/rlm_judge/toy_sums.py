"""x: a toy environment in which a model can learn both to answer and to judge (``rlm_environments``)."""

from __future__ import annotations

import hashlib
import random
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]

MAX_SUMMAND = 20


def sums_and_verdicts(
    *, train_rows: Count = 16384, verdicts: Share = 0.5, slip: Share = 0.0, known: bool = True, seed: int = 0
) -> EnvironmentSpec:
    """Build sums up to 20+20, to be answered or judged: ``7+8=?`` → 15, ``7+8=?16`` → 0.

    A share of the training examples are `verdicts`: a sum with a proposed answer, correct in half of them; the target
    is 1 if it is correct. Columns: ``prompt``, ``answer``, ``demonstration``, and ``judged``: whether the completion is
    an answer that a judge should score. `slip`: probability that the demonstration of a sum is one too high; verdicts
    are always correct. Unless `known`, sums have no ``answer`` in training, so that only a judge can score them.

    The test examples are one sum in eight, chosen by its hash and excluded from training, both as sum and as verdict.

    >>> spec = sums_and_verdicts(train_rows=1)
    >>> len(spec.test), spec.test[0]["prompt"][0]["content"], spec.test[0]["answer"]
    (49, '1+9=?', '10')
    """
    pairs = [(a, b) for a in range(1, MAX_SUMMAND + 1) for b in range(1, MAX_SUMMAND + 1)]
    training = [pair for pair in pairs if not is_held_out(*pair)]
    rng = random.Random(f"sums and verdicts {seed}")
    examples = []
    for _ in range(train_rows):
        pair = rng.choice(training)
        examples.append(_verdict(*pair, rng) if rng.random() < verdicts else _sum(*pair, rng.random() < slip))
    for example in examples:
        example["answer"] = example["answer"] if known or not example["judged"] else None
    return EnvironmentSpec(train=examples, test=[_sum(*pair, False) for pair in pairs if is_held_out(*pair)])


def is_held_out(a: int, b: int) -> bool:
    """Return True for one sum in eight, by a hash that ignores the order of the summands."""
    return hashlib.blake2b(f"{min(a, b)}+{max(a, b)}".encode(), digest_size=1).digest()[0] < 32


def _sum(a: int, b: int, has_error: bool) -> dict[str, Any]:
    return _example(f"{a}+{b}=?", str(a + b), str(a + b + has_error), judged=True)


def _verdict(a: int, b: int, rng: random.Random) -> dict[str, Any]:
    """Return a sum with a proposed answer; wrong ones are close to the correct one."""
    is_correct = rng.random() < 0.5
    proposed = a + b if is_correct else max(0, a + b + rng.choice((-10, -2, -1, 1, 1, 1, 2, 10)))
    return _example(f"{a}+{b}=?{proposed}", str(int(is_correct)), str(int(is_correct)), judged=False)


def _example(question: str, answer: str, demonstration: str, *, judged: bool) -> dict[str, Any]:
    prompt = [{"role": "user", "content": question}]
    return {"prompt": prompt, "answer": answer, "demonstration": demonstration, "judged": judged}
