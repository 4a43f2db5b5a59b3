"""x: toy environments in which a model can learn to answer, to judge and to criticize (``rlm_environments``)."""

from __future__ import annotations

import hashlib
import random
from typing import Any, Literal

from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.specs import EnvironmentSpec

SUMS = [(a, b) for a in range(1, 21) for b in range(1, 21)]


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
    training = [pair for pair in SUMS if not is_held_out(*pair)]
    rng = random.Random(f"sums and verdicts {seed}")
    examples = []
    for _ in range(train_rows):
        pair = rng.choice(training)
        examples.append(_verdict(*pair, rng) if rng.random() < verdicts else _sum(*pair, rng.random() < slip))
    for example in examples:
        example["answer"] = example["answer"] if known or not example["judged"] else None
    return EnvironmentSpec(train=examples, test=[_sum(*pair, False) for pair in SUMS if is_held_out(*pair)])


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
    return {"prompt": _prompt(question), "answer": answer, "demonstration": demonstration, "judged": judged}


REQUEST = "="
"""The request for a critique."""


def critiqued_sums(
    *, train_rows: Count = 1024, show: Literal["pairs", "critiques"] = "pairs", seed: int = 0
) -> EnvironmentSpec:
    """Build answers to sums up to 20+20, each with a request for a critique: ``7+8=?``, ``16``, ``=`` → ``15-``.

    A critique is the right sum and ``+`` if the answer is equal to it, else ``-``. With `show: pairs` a row has the
    sum as ``prompt``, and ``chosen`` and ``rejected``: a right or a wrong answer with the request. With `show:
    critiques` a row is one answer: its ``demonstration`` is the critique, and ``answer`` too. One sum in eight is held
    out, by its hash.

    >>> spec = critiqued_sums(train_rows=1)
    >>> [message["content"] for message in spec.test[0]["chosen"]], len(spec.test)
    (['10', '='], 49)
    """
    rng = random.Random(f"critiqued sums {seed}")
    known = [pair for pair in SUMS if not is_held_out(*pair)]
    drawn = [rng.choice(known) for _ in range(train_rows)]
    fixed = random.Random("held-out critiqued sums")
    row = _pair if show == "pairs" else _critique
    held_out = [pair for pair in SUMS if is_held_out(*pair)]
    return EnvironmentSpec(
        train=[row(*pair, rng) for pair in drawn],
        test=[row(*pair, fixed) for pair in held_out],
    )


def _wrong(a: int, b: int, rng: random.Random) -> int:
    return max(0, a + b + rng.choice((-10, -2, -1, 1, 2, 10)))


def _asked(answer: int) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": str(answer)}, {"role": "user", "content": REQUEST}]


def _prompt(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def _pair(a: int, b: int, rng: random.Random) -> dict[str, Any]:
    return {"prompt": _prompt(f"{a}+{b}=?"), "chosen": _asked(a + b), "rejected": _asked(_wrong(a, b, rng))}


def _critique(a: int, b: int, rng: random.Random) -> dict[str, Any]:
    answer = a + b if rng.random() < 0.5 else _wrong(a, b, rng)
    critique = f"{a + b}{'+' if answer == a + b else '-'}"
    return {"prompt": [*_prompt(f"{a}+{b}=?"), *_asked(answer)], "demonstration": critique, "answer": critique}
