"""One worker: reads a question per line, answers it with math-verify. Run by path, in a process that may be killed.

It needs neither rlm-plugins nor this package. A question is ``[gold, answers, tolerance, relative, seconds]`` as JSON,
an answer the word ``right``, ``wrong`` or ``unreadable``. It ends when its input ends, so it never outlives its
trainer; and what it is working on then is bounded by the processor time each question is given.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from functools import lru_cache
from typing import Any

MEMORY = 2 << 30
DIGITS = 30


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    try:
        import sympy
        from math_verify import LatexExtractionConfig, parse, verify
    except ImportError as error:
        print(f"failed {error}", file=out, flush=True)
        return

    settings = {"float_rounding": 12, "strict": True, "allow_set_relation_comp": True, "timeout_seconds": None}

    @lru_cache(maxsize=256)
    def parsed(text: str) -> list[Any]:
        return list(parse(text, [LatexExtractionConfig()], parsing_timeout=None))  # type: ignore[arg-type]

    def same(right: list[Any], answer: str, tolerance: float, relative: float) -> bool:
        found = parsed(f"\\boxed{{{answer}}}")
        pair = [next((e for e in side if not isinstance(e, str)), None) for side in (right, found)]
        apart = _apart(*pair, sympy)
        if apart is not None:  # two numbers, known to thirty digits
            difference, size = apart
            return difference <= max(tolerance, relative * size, 1e-20 * size)
        return None not in pair and bool(verify(right, found, **settings))

    def decide(gold: str, answers: list[str], tolerance: float, relative: float) -> str:
        right = parsed(f"${gold}$")
        if all(isinstance(each, str) for each in right):
            return "unreadable"
        # no answers: nothing was asked but whether the data set's can be read
        return "right" if all(same(right, answer, tolerance, relative) for answer in answers) else "wrong"

    for gold, answer in (("x^2+2x+1", "(x+1)^2"), (r"\{1,2\}", r"\{2,1\}")):
        decide(gold, [answer], 0.0, 0.0)  # loads what sympy loads late now, on nobody's time
    _limit_everything()
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        gold, answers, tolerance, relative, seconds = json.loads(line)
        _limit_time(seconds)
        try:
            verdict = decide(gold, answers, tolerance, relative)
        except Exception:  # also RecursionError, MemoryError: what cannot be worked out is not right
            verdict = "wrong" if answers else "unreadable"
        print(verdict, file=out, flush=True)


def _apart(a: Any, b: Any, sympy: Any) -> tuple[float, float] | None:
    """(distance, size of the first) of two numbers; None when one of them is none."""
    if not all(isinstance(x, sympy.Expr) and x.is_number for x in (a, b)):
        return None
    values = [complex(sympy.N(x, DIGITS)) for x in (a, b)]
    if any(value != value or abs(value) == float("inf") for value in values):
        return None
    return float(abs(sympy.N(a - b, DIGITS, maxn=200))), abs(values[0])


def _limit_everything() -> None:
    try:
        import resource
    except ImportError:
        return
    for limit, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        # not every system can limit everything; the time limit of the pool does not depend on it
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))


def _limit_time(seconds: float) -> None:
    """Processor time for the next question; the system kills the process that takes more."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed = int(used.ru_utime + used.ru_stime + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main()
