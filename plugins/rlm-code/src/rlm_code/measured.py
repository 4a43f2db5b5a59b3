"""Throughput of `code_tests` in programs per minute, on the recipe's environment; two thirds of them correct.

python -m rlm_code.measured [programs]
"""

from __future__ import annotations

import os
import sys
import time

from rlm_sandbox import shared

from rlm_code.reward import Credit, code_tests
from rlm_code.toy_programs import code_drills

BATCH = 256


def batch(start: int) -> tuple[list[str], list[str], list[float]]:
    """Return distinct programs (by a comment at least), their tests, and their correct scores."""
    rows = code_drills(train_rows=BATCH, test_rows=1, seed=start).train
    texts = [f"{row['demonstration']}{'+1' * (n % 3 == 0)} # {start + n}" for n, row in enumerate(rows)]
    return texts, [str(row["tests"]) for row in rows], [float(n % 3 > 0) for n in range(BATCH)]


def main() -> None:
    """Print programs per minute for `all` (stops at the first failure) and for `share`."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2560
    code_tests(*batch(0)[:2], unfenced="whole")  # starts the sandbox before the timed batches
    kinds: tuple[Credit, ...] = ("all", "share")
    for credit in kinds:
        start_time, errors = time.monotonic(), 0
        for start in range(BATCH, BATCH + count, BATCH):
            texts, tests, correct_scores = batch(start)
            scores = code_tests(texts, tests, unfenced="whole", credit=credit)
            errors += sum(
                (score == 1.0) != bool(correct) for score, correct in zip(scores, correct_scores, strict=True)
            )
        minutes = (time.monotonic() - start_time) / 60
        print(
            f"{credit}: {count / minutes:.0f} programs a minute, {errors} wrong scores; "
            f"{shared().size} workers, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
