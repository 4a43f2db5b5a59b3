"""Worker process: reads one query per line and compares the answers with the reference. Run by path; killed when late.

A query is ``[gold, answers, rules, seconds]`` as JSON, a reply one of the
words ``right``, ``wrong`` and ``unreadable``. It exits when its input ends, so it never outlives its trainer. Each one
has a limit of processor time, which bounds the work in progress at that point.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from collections.abc import Sequence

MEMORY = 2 << 30
RECURSION = 20_000
"""Depth of the parser and of comparisons; the length of an answer bounds it far below."""


def main() -> None:
    """Load the comparison, warm it up, and answer queries until the input ends."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not be read as replies
    try:
        from rlm_math.algebra.comparison import is_right
        from rlm_math.algebra.evaluation import Rules
        from rlm_math.algebra.value_parser import parse_value
    except ImportError as error:
        print(f"failed {error}", file=output, flush=True)
        return

    def verdict(gold: str, answers: Sequence[str], rules: Rules) -> str:
        try:
            expected = parse_value(gold)
        except Exception:
            return "unreadable"
        try:
            # no answers: the query was only whether the reference can be parsed
            return "right" if all(is_right(expected, parse_value(answer), rules) for answer in answers) else "wrong"
        except Exception:  # also RecursionError, MemoryError: an undecidable answer is not correct
            return "wrong"

    sys.setrecursionlimit(RECURSION)
    sys.set_int_max_str_digits(0)
    verdict(r"\\sqrt{8}", [r"2\\sqrt{2}"], Rules())
    _limit_resources()
    print("ready", file=output, flush=True)
    for line in sys.stdin:
        gold, answers, rules, seconds = json.loads(line)
        _limit_time(seconds)
        print(verdict(gold, answers, Rules(*rules)), file=output, flush=True)


def _limit_resources() -> None:
    for limit, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        # not every system supports every limit; the pool's time limit does not depend on them
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))


def _limit_time(seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed = int(used.ru_utime + used.ru_stime + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main()
