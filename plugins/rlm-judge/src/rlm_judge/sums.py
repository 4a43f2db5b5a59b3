"""x: a world small enough for a laptop in which a model can learn to answer and to judge (``rlm_environments``)."""

from __future__ import annotations

import hashlib
import random
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]

LARGEST = 20


def sums_and_verdicts(
    *, train_rows: Count = 16384, verdicts: Share = 0.5, slip: Share = 0.0, known: bool = True, seed: int = 0
) -> EnvironmentSpec:
    """Sums up to 20+20, to be answered or to be judged: ``7+8=?`` → 15, ``7+8=?16`` → 0.

    A share of the training rows are `verdicts`: a sum with somebody's answer, right as often as wrong; 1 says that it
    is right. Columns: ``prompt``, ``answer``, ``demonstration``, and ``judged``: whether it is an answer that a judge
    should mark. `slip`: how often the demonstration of a sum is one too high; verdicts are always right. Unless
    `known`, sums have no ``answer`` in training: only a judge can say something about them.

    The test rows are one sum in eight, chosen by its hash and never seen in training, neither asked nor judged.

    >>> world = sums_and_verdicts(train_rows=1)
    >>> len(world.test), world.test[0]["prompt"][0]["content"], world.test[0]["answer"]
    (49, '1+9=?', '10')
    """
    pairs = [(a, b) for a in range(1, LARGEST + 1) for b in range(1, LARGEST + 1)]
    trained = [pair for pair in pairs if not _held_out(*pair)]
    draw = random.Random(f"sums and verdicts {seed}")
    rows = []
    for _ in range(train_rows):
        pair = draw.choice(trained)
        rows.append(_verdict(*pair, draw) if draw.random() < verdicts else _sum(*pair, draw.random() < slip))
    for row in rows:
        row["answer"] = row["answer"] if known or not row["judged"] else None
    return EnvironmentSpec(train=rows, test=[_sum(*pair, False) for pair in pairs if _held_out(*pair)])


def _held_out(a: int, b: int) -> bool:
    return hashlib.blake2b(f"{min(a, b)}+{max(a, b)}".encode(), digest_size=1).digest()[0] < 32


def _sum(a: int, b: int, slips: bool) -> dict[str, Any]:
    return _row(f"{a}+{b}=?", str(a + b), str(a + b + slips), judged=True)


def _verdict(a: int, b: int, draw: random.Random) -> dict[str, Any]:
    """A sum with an answer; the wrong ones are near the right one, as slips are."""
    right = draw.random() < 0.5
    said = a + b if right else max(0, a + b + draw.choice((-10, -2, -1, 1, 1, 1, 2, 10)))
    return _row(f"{a}+{b}=?{said}", str(int(right)), str(int(right)), judged=False)


def _row(asked: str, answer: str, shown: str, *, judged: bool) -> dict[str, Any]:
    prompt = [{"role": "user", "content": asked}]
    return {"prompt": prompt, "answer": answer, "demonstration": shown, "judged": judged}
