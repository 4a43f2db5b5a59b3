"""Every fault that the tests inject, counted by group; the table goes to `docs/faults.md`.

    python tests/run_faults.py [GROUP ...] [-k EXPRESSION] [--missing] [--minutes M]    (make faults)

A test in `tests/faults/` belongs to a group by its marker: ``@pytest.mark.faults(group="F3")``. It counts as one case,
or as many as its fixture `cases` counts. Without arguments all groups run. Each result replaces the one of that test in
`benchmarks/results/faults.jsonl`, so that a part of the tests can be run again; ``--missing`` goes on with the rest.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from rlm_plugins.durable.files import write_file

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
RESULTS = ROOT / "benchmarks" / "results" / "faults.jsonl"
HEAD = "| group | fault | passed | CPU | measured |\n|---|---|---|---|---|\n"
TITLES = {
    "F1": "SIGKILL at every file operation of a run",
    "F2": "SIGKILL at a random moment of a run",
    "F3": "a file of a checkpoint is damaged",
    "F3b": "a line of a log is incomplete or damaged",
    "F4": "resumed from every step of three epochs, for 25 kinds of run",
    "F5": "ENOSPC and EIO at every file operation of a run",
    "F6": "rewards that raise, return wrong values, exit, hang or change the process",
    "F7": "defects of data sets",
    "F8": "recipes with random mistakes",
    "F9": "plugins that fail, hang or are damaged",
    "F14": "a run folder from an untrusted source",
    "changes": "something was changed before a run is resumed",
    "divergence": "loss, gradient or weights that explode",
    "outputs": "SIGKILL and a full disk at the file operations of other commands",
    "machines": "another processor, and equal runs at once on a cold cache",
    "places": "a path that cannot hold a run folder",
    "processes": "SIGKILL, damage and resume with two processes",
    "memory": "out of memory and errors of other libraries, in generation, update and log",
    "consoles": "a closed terminal, a reader that ends, a full disk under the log",
    "signals": "SIGTERM, SIGHUP, SIGINT, SIGUSR1 at random moments",
    "values": "values of settings of implausible size",
    "writers": "two processes write into one run folder",
}


Results = dict[str, dict[str, Any]]
"""Test → ``group``, ``passed``, ``total``, ``cpu`` seconds, ``date``."""


class Tally:
    """Pytest plugin that keeps the result of each test, as `tests/faults/conftest.py` reports them.

    Args:
        minutes: After them no further test is started.
    """

    def __init__(self, minutes: float) -> None:
        self.results: Results = {}
        self._deadline = time.monotonic() + 60 * minutes

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        properties = dict(report.user_properties)
        unpassed = "unpassed" in properties or report.failed
        passed, total = properties.get("cases", (0 if unpassed else 1, 1))
        total += unpassed and passed == total  # the test failed outside its cases
        result = {"group": properties["group"], "passed": passed, "total": total}
        today = datetime.now(UTC).date().isoformat()
        self.results[report.nodeid] = {**result, "cpu": round(properties["cpu"], 1), "date": today}
        update({report.nodeid: self.results[report.nodeid]})
        if time.monotonic() > self._deadline:
            self._session.shouldstop = "the time is over; `--missing` goes on"


def table(results: Results) -> str:
    """Return the table, ordered by group; the date of a group is that of its oldest result.

    >>> one = {"group": "F2", "passed": 1, "total": 2, "cpu": 3.0, "date": "2026-01-02"}
    >>> print(table({"a": one, "b": {**one, "date": "2026-01-01"}}).removeprefix(HEAD), end="")
    | F2 | SIGKILL at a random moment of a run | 2 of 4 | 6 s | 2026-01-01 |
    """
    rows = []
    for group in sorted(TITLES, key=lambda group: (int(re.sub(r"\D", "", group) or 99), group)):
        found = [result for result in results.values() if result["group"] == group]
        if found:
            passed, total, cpu = (sum(result[key] for result in found) for key in ("passed", "total", "cpu"))
            date = min(result["date"] for result in found)
            rows.append(f"| {group} | {TITLES[group]} | {passed} of {total} | {cpu:.0f} s | {date} |\n")
    return HEAD + "".join(rows)


def read() -> Results:
    """Return all results that are kept."""
    lines = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines()) if RESULTS.exists() else ()
    return {line.pop("test"): line for line in lines}


def update(new: Results, without: tuple[str, ...] = ()) -> None:
    """Replace results by new ones and write the table into the page; several processes may do so at a time.

    Args:
        new: The new results.
        without: Groups whose results are dropped before.
    """
    with FileLock(RESULTS.with_suffix(".lock")):
        kept = {test: result for test, result in read().items() if result["group"] not in without}
        _write({**kept, **new})


def _write(results: Results) -> None:
    lines = [json.dumps({"test": test, **result}) + "\n" for test, result in sorted(results.items())]
    write_file(RESULTS, "".join(lines))
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(HEAD)
    after = re.sub(r"\A(\|.*\n)*", "", rest)
    write_file(PAGE, before + table(results) + after)


def main() -> int:
    """Run the cases, write the table, and return pytest's exit status."""
    parser = argparse.ArgumentParser(description="Inject every fault.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", choices=[*TITLES, []], help="default: all")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="as of pytest: only these tests")
    parser.add_argument("-n", default="2", metavar="COUNT", help="tests at a time; 0: in this process")
    parser.add_argument("--missing", action="store_true", help="only tests without a result")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no test after them")
    chosen = parser.parse_args()
    tally, groups = Tally(chosen.minutes), chosen.groups or [*TITLES]
    expression = " or ".join(f"faults(group='{group}')" for group in groups)
    options = ["-m", expression, "-k", chosen.k, "-p", "no:cacheprovider", "-n", chosen.n, "--dist", "worksteal"]
    if chosen.missing:
        options.append(f"--without-results-in={RESULTS}")
    elif not chosen.k:  # no result of a test that no longer exists
        update({}, without=tuple(groups))
    status = pytest.main([str(ROOT / "tests" / "faults"), *options], plugins=[tally])
    print("\n" + table(tally.results))
    failed = [test for test, result in tally.results.items() if result["passed"] < result["total"]]
    print("\n  ".join(["failed:", *failed]) if failed else "all passed")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
