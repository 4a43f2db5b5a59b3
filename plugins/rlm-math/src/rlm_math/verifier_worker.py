"""Worker process: reads one query per line and answers it with math-verify. Run by path, and killed when late.

It needs neither rlm-plugins nor this package. A query is ``[gold, answers, tolerance, relative, seconds]`` as JSON,
a reply one of the words ``right``, ``wrong`` and ``unreadable``. It exits when its input ends, so it never outlives
its trainer. Each query has a limit of processor time, which bounds the work in progress at that point.
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
    """Load math-verify, warm it up, and answer queries until the input ends."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not be read as replies
    try:
        import sympy
        from math_verify import LatexExtractionConfig, parse, verify
    except ImportError as error:
        print(f"failed {error}", file=output, flush=True)
        return

    settings = {"float_rounding": 12, "strict": True, "allow_set_relation_comp": True, "timeout_seconds": None}

    @lru_cache(maxsize=256)
    def parse_latex(text: str) -> list[Any]:
        return list(parse(text, [LatexExtractionConfig()], parsing_timeout=None))  # type: ignore[arg-type]

    def is_equal(expected: list[Any], answer: str, tolerance: float, relative: float) -> bool:
        candidate = parse_latex(f"\\boxed{{{answer}}}")
        first, second = (next((e for e in side if not isinstance(e, str)), None) for side in (expected, candidate))
        numeric = _numeric_difference(first, second, sympy)
        if numeric is not None:  # two numbers, computed to thirty digits
            difference, size = numeric
            return difference <= max(tolerance, relative * size, 1e-20 * size)
        return first is not None and second is not None and bool(verify(expected, candidate, **settings))

    def decide(gold: str, answers: list[str], tolerance: float, relative: float) -> str:
        expected = parse_latex(f"${gold}$")
        if all(isinstance(element, str) for element in expected):
            return "unreadable"
        # no answers: the query was only whether the reference can be parsed
        return "right" if all(is_equal(expected, answer, tolerance, relative) for answer in answers) else "wrong"

    for gold, answer in (("x^2+2x+1", "(x+1)^2"), (r"\{1,2\}", r"\{2,1\}")):
        decide(gold, [answer], 0.0, 0.0)  # triggers sympy's lazy imports before the first timed query
    _limit_resources()
    print("ready", file=output, flush=True)
    for line in sys.stdin:
        gold, answers, tolerance, relative, seconds = json.loads(line)
        _limit_time(seconds)
        try:
            reply = decide(gold, answers, tolerance, relative)
        except Exception:  # also RecursionError, MemoryError: an undecidable answer is not correct
            reply = "wrong" if answers else "unreadable"
        print(reply, file=output, flush=True)


def _numeric_difference(a: Any, b: Any, sympy: Any) -> tuple[float, float] | None:
    """Return (distance, magnitude of the first) of two numbers; None if either is not a number."""
    if not all(isinstance(x, sympy.Expr) and x.is_number for x in (a, b)):
        return None
    values = [complex(sympy.N(x, DIGITS)) for x in (a, b)]
    if any(value != value or abs(value) == float("inf") for value in values):
        return None
    return float(abs(sympy.N(a - b, DIGITS, maxn=200))), abs(values[0])


def _limit_resources() -> None:
    """Limit memory and file size of this process where the system supports it."""
    try:
        import resource
    except ImportError:
        return
    for limit, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        # not every system supports every limit; the pool's time limit does not depend on them
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))


def _limit_time(seconds: float) -> None:
    """Limit the processor time of the next query; the system kills a process that exceeds it."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed = int(used.ru_utime + used.ru_stime + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main()
