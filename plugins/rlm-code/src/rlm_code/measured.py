"""How many programs a minute `code_tests` runs: those of the recipe's world, two in three of them right.

python -m rlm_code.measured [programs]
"""

from __future__ import annotations

import os
import sys
import time

from rlm_sandbox import shared

from rlm_code.drills import code_drills
from rlm_code.reward import Credit, code_tests

BATCH = 256


def batch(start: int) -> tuple[list[str], list[str], list[float]]:
    """Programs that differ in a comment at least, their tests, and what they deserve."""
    rows = code_drills(train_rows=BATCH, test_rows=1, seed=start).train
    texts = [f"{row['demonstration']}{'+1' * (n % 3 == 0)} # {start + n}" for n, row in enumerate(rows)]
    return texts, [str(row["tests"]) for row in rows], [float(n % 3 > 0) for n in range(BATCH)]


def main() -> None:
    """Prints programs per minute, for `all` (stops at the first failure) and for `share`."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2560
    code_tests(*batch(0)[:2], unfenced="whole")  # what starts once is on nobody's time
    kinds: tuple[Credit, ...] = ("all", "share")
    for credit in kinds:
        clock, misjudged = time.monotonic(), 0
        for start in range(BATCH, BATCH + count, BATCH):
            texts, tests, deserved = batch(start)
            scores = code_tests(texts, tests, unfenced="whole", credit=credit)
            misjudged += sum((score == 1.0) != bool(right) for score, right in zip(scores, deserved, strict=True))
        minutes = (time.monotonic() - clock) / 60
        print(
            f"{credit}: {count / minutes:.0f} programs a minute, {misjudged} judged wrongly; "
            f"{shared().size} places, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
