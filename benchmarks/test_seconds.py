"""Choose the tests that `make test` leaves to `make test-full`: ``python benchmarks/test_seconds.py LOG …``.

A log is the output of pytest with ``--durations=0 --durations-min=0``, of a tier or of both. A test of more than two
seconds is left to the full tier. Of one with many cases, those stay that take a second in all. If there are more
than `MANY`, which take longer than `OF_FULL`, the full tier runs a sample. The script writes `tests/long_tests.txt`.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

LONG = Path(__file__).parents[1] / "tests" / "long_tests.txt"
LONGEST, OF_CASES, OF_FULL = 2.0, 1.0, 20.0
"""Seconds of one test in `make test`, of all cases of one test there, and of these in `make test-full`."""
MANY = 12
"""Up to so many cases of a test each have a reason of their own."""
LINE = re.compile(r"([0-9.]+)s (?:setup|call|teardown) +(.+)")


def seconds_of(logs: Sequence[str]) -> dict[str, float]:
    """Return the seconds of each test, with those of its fixtures.

    >>> seconds_of(["1.50s call     t.py::test_a[1]\\n0.50s setup    t.py::test_a[1]"])
    {'t.py::test_a[1]': 2.0}
    """
    seconds: dict[str, float] = defaultdict(float)
    for duration, test in (match for log in logs for match in LINE.findall(log)):
        seconds[test] += float(duration)
    return dict(seconds)


def cases_that_stay(seconds: Mapping[str, float]) -> dict[str, list[int]]:
    """Return the tests that are too long, how many of their cases stay, and how many the full tier runs if not all.

    >>> cases_that_stay({"a": 3.0, "b": 1.0, "c[1]": 2.0, "c[2]": 0.5, **{f"d[{case}]": 5.0 for case in range(20)}})
    {'a': [0], 'c': [1], 'd': [0, 4]}
    """
    tests: dict[str, list[float]] = defaultdict(list)
    for test, duration in seconds.items():
        tests[test.partition("[")[0]].append(duration)
    stay: dict[str, list[int]] = {}
    for test, durations in sorted(tests.items()):
        mean = sum(durations) / len(durations)
        if mean > LONGEST:
            stay[test] = [0]
        elif len(durations) > 1 and sum(durations) > LONGEST:
            stay[test] = [max(1, int(OF_CASES / mean))]
        if len(durations) > MANY and sum(durations) > OF_FULL:
            stay[test].append(max(1, int(OF_FULL / mean)))
    return {test: counts for test, counts in stay.items() if counts[0] < len(tests[test])}


def main(files: Sequence[str]) -> int:
    """Read the logs and write the list."""
    seconds = seconds_of([Path(file).read_text(encoding="utf-8") for file in files])
    stay = cases_that_stay(seconds)
    LONG.write_text(
        "".join(" ".join(map(str, [test, *counts])) + "\n" for test, counts in stay.items()), encoding="utf-8"
    )
    print(f"{LONG.name}: {len(stay)} of {len(seconds)} tests, {sum(seconds.values()):.0f} s measured")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
