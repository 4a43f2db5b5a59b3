"""The table of the README: `math_accuracy` beside stock math-verify and TRL's `accuracy_reward`, on the same inputs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from rlm_math.measured.adversary import CASES, Case, box
from rlm_math.measured.pairs import COMMITTED, RIGHT, UNCOMMITTED, WRONG

Scorer = Callable[[str, str], Any]

PAIRS = [
    *(Case("right", gold, box(said), 1.0) for gold, said in RIGHT),
    *(Case("wrong", gold, box(said), 0.0) for gold, said in WRONG),
    *(Case("committed", gold, text, 1.0) for gold, text in COMMITTED),
    *(Case("uncommitted", gold, text, 0.0) for gold, text in UNCOMMITTED),
]


def ours(gold: str, text: str) -> Any:
    """`math_accuracy` with its defaults."""
    from rlm_math import math_accuracy

    return math_accuracy([text], [gold])[0]


def stock(gold: str, text: str) -> Any:
    """math-verify as its README calls it."""
    from math_verify import parse, verify

    return float(verify(parse(gold), parse(text)))


def trl(gold: str, text: str) -> Any:
    """TRL's reward with the bare answer of a data set, as its documentation calls it."""
    from trl.rewards import accuracy_reward

    return accuracy_reward([[{"role": "assistant", "content": text}]], [gold])[0]


def measure(scorer: Scorer, cases: list[Case]) -> dict[str, float]:
    """Counts over `cases`, and the longest time in seconds."""
    count = dict.fromkeys(("as expected", "wrong rewarded", "right missed", "unscored", "longest"), 0.0)
    scorer("2", box(r"\sqrt{4}"))  # imports, and warm workers, are on nobody's time
    for case in cases:
        start = time.perf_counter()
        try:
            score = scorer(case.gold, case.completion)
        except Exception:  # an exception is no score either
            score = None
        count["longest"] = max(count["longest"], time.perf_counter() - start)
        word = "right missed" if case.expected else "wrong rewarded"
        count["unscored" if score is None else "as expected" if score == case.expected else word] += 1
    return count


def main() -> None:
    """Prints a line per scorer and set."""
    logging.disable(logging.CRITICAL)
    for title, cases in (("adversarial", CASES), ("pairs", PAIRS)):
        print(f"{title}, {len(cases)} inputs")
        for scorer in (ours, stock, trl):
            found = measure(scorer, cases)
            told = ", ".join(f"{what} {number:.1f}" for what, number in found.items())
            print(f"  {scorer.__name__:6} {told}", flush=True)


if __name__ == "__main__":
    main()
