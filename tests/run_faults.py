"""Every fault that the tests inject, counted by group; the table goes to `docs/faults.md`.

    python tests/run_faults.py [GROUP ...]    (make faults)

A test in `tests/faults/` belongs to a group by its marker: ``@pytest.mark.faults(group="F3")``. It counts as one case,
or as many as its fixture `cases` counts. Without arguments all groups run, two tests at a time. With arguments only
their rows are replaced.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
HEAD = "| group | fault | passed | CPU | measured |\n|---|---|---|---|---|\n"
GROUP = re.compile(r"\| (\S+) \|")
TITLES = {
    "F1": "SIGKILL at every file operation of a run",
    "F2": "SIGKILL at a random moment of a run",
    "F3": "a file of a checkpoint is damaged",
    "F3b": "a line of a log is incomplete or damaged",
    "F4": "resumed from every step of three epochs, for 25 kinds of run",
    "F5": "ENOSPC and EIO at every file operation of a run",
    "F6": "rewards that fail, lie, exit, hang or change the process",
    "F7": "defects of data sets",
    "F8": "recipes with random mistakes",
    "F9": "plugins that fail, hang or are damaged",
    "F14": "a run folder of a stranger",
    "changes": "something was changed before a run is resumed",
    "divergence": "loss, gradient or weights that explode",
    "places": "a place that cannot hold a run",
    "processes": "SIGKILL, damage and resume with two processes",
    "signals": "SIGTERM, SIGHUP, SIGINT, SIGUSR1 at random moments",
    "values": "values that cannot be meant",
    "writers": "two processes write into one run folder",
}


class Tally:
    """Pytest plugin that counts cases and CPU seconds by group, as `tests/faults/conftest.py` reports them."""

    def __init__(self) -> None:
        self.good: dict[str, int] = defaultdict(int)
        self.total: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        properties = dict(report.user_properties)
        unpassed = "unpassed" in properties or report.failed
        passed, total = properties.get("cases", (0 if unpassed else 1, 1))
        total += unpassed and passed == total  # the test failed outside its cases
        group = properties["group"]
        self.good[group] += passed
        self.total[group] += total
        self.seconds[group] += properties["cpu"]
        if passed < total:
            self.failed.append(report.nodeid)

    def rows(self) -> dict[str, str]:
        """Return group → row of the table."""
        today = datetime.now(UTC).date().isoformat()
        counts = {group: f"{self.good[group]} of {total}" for group, total in self.total.items()}
        return {
            group: f"| {group} | {TITLES[group]} | {count} | {self.seconds[group]:.0f} s | {today} |\n"
            for group, count in counts.items()
        }


def merged(page: str, rows: dict[str, str]) -> str:
    """Return the page with these rows in its table, ordered by group.

    >>> page = HEAD + "| F10 | old | 1 of 2 | 3 s | then |\\nend"
    >>> print(merged(page, {"F10": "| F10 | new |\\n", "F2": "| F2 | first |\\n"}).removeprefix(HEAD))
    | F2 | first |
    | F10 | new |
    end
    """
    before, _, rest = page.partition(HEAD)
    old = re.match(r"(\|.*\n)*", rest)
    assert old is not None
    table = {GROUP.match(line)[1]: line for line in old[0].splitlines(keepends=True)} | rows
    ordered = sorted(table, key=lambda group: (int(re.sub(r"\D", "", group) or 99), group))
    return before + HEAD + "".join(table[group] for group in ordered) + rest[old.end() :]


def main(groups: list[str]) -> int:
    """Run the cases, write the table, and return pytest's exit status."""
    tally = Tally()
    chosen = " or ".join(f"faults(group='{group}')" for group in groups or TITLES)
    options = ["-m", chosen, "-p", "no:cacheprovider", "-n", "2", "--dist", "worksteal"]
    status = pytest.main([str(ROOT / "tests" / "faults"), *options], plugins=[tally])
    rows = tally.rows()
    PAGE.write_text(merged(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    print("\n" + HEAD + "".join(rows.values()))
    if tally.failed:
        print("failed:\n  " + "\n  ".join(tally.failed))
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
