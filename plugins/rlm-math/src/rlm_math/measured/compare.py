"""Comparison of `math_accuracy` with plain math-verify and TRL's `accuracy_reward` on the same inputs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from rlm_math.measured.adversarial_cases import CASES, Case, box
from rlm_math.measured.pairs import COMMITTED, RIGHT, UNCOMMITTED, WRONG

Scorer = Callable[[str, str], Any]

PAIRS = [
    *(Case("right", gold, box(answer), 1.0) for gold, answer in RIGHT),
    *(Case("wrong", gold, box(answer), 0.0) for gold, answer in WRONG),
    *(Case("committed", gold, text, 1.0) for gold, text in COMMITTED),
    *(Case("uncommitted", gold, text, 0.0) for gold, text in UNCOMMITTED),
]


def ours(gold: str, text: str) -> Any:
    """Return the score of `math_accuracy` with its defaults."""
    from rlm_math import math_accuracy

    return math_accuracy([text], [gold])[0]


def stock(gold: str, text: str) -> Any:
    """Return the score of math-verify, called as its README shows."""
    from math_verify import parse, verify

    return float(verify(parse(gold), parse(text)))


def trl(gold: str, text: str) -> Any:
    """Return the score of TRL's reward, called with a plain answer as its documentation shows."""
    from trl.rewards import accuracy_reward

    return accuracy_reward([[{"role": "assistant", "content": text}]], [gold])[0]


def measure(scorer: Scorer, cases: list[Case]) -> dict[str, float]:
    """Count outcomes over `cases`, and measure the longest time in seconds."""
    count = dict.fromkeys(("as expected", "wrong rewarded", "right missed", "unscored", "longest"), 0.0)
    scorer("2", box(r"\sqrt{4}"))  # imports and starts workers before the timed cases
    for case in cases:
        start = time.perf_counter()
        try:
            score = scorer(case.gold, case.completion)
        except Exception:  # an exception is no score either
            score = None
        count["longest"] = max(count["longest"], time.perf_counter() - start)
        error_kind = "right missed" if case.expected else "wrong rewarded"
        if score is None:
            error_kind = "unscored"
        count["as expected" if score == case.expected else error_kind] += 1
    return count


def main() -> None:
    """Print a line per scorer and set of inputs."""
    logging.disable(logging.CRITICAL)
    for title, cases in (("adversarial", CASES), ("pairs", PAIRS)):
        print(f"{title}, {len(cases)} inputs")
        for scorer in (ours, stock, trl):
            counts = measure(scorer, cases)
            report = ", ".join(f"{name} {number:.1f}" for name, number in counts.items())
            print(f"  {scorer.__name__:6} {report}", flush=True)


if __name__ == "__main__":
    main()
