"""Every fault that the tests inject, counted by group; the table goes to `docs/faults.md`.

    python tests/run_faults.py [GROUP ...]    (make faults)

A test in `tests/faults/` belongs to a group by its marker: ``@pytest.mark.faults("F3", "what is done")``. It counts as
one case, or as many as its fixture `cases` counts. Without arguments all groups run; with arguments
only their rows are replaced.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
HEAD = "| group | fault | passed | measured |\n|---|---|---|---|\n"
GROUP = re.compile(r"\| (\S+) \|")


class Tally:
    """Pytest plugin that counts cases by group.

    Args:
        groups: Groups to run; empty: all.
    """

    def __init__(self, groups: list[str]) -> None:
        self.groups = groups
        self.titles: dict[str, str] = {}
        self.good: dict[str, int] = defaultdict(int)
        self.total: dict[str, int] = defaultdict(int)
        self.failed: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if not self.groups or group_of(item)[0] in self.groups]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
        for item in chosen:
            group, title = group_of(item)
            self.titles.setdefault(group, title)
            item.user_properties.append(("group", group))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report = yield
        if not report.passed:  # skipped is not passed
            item.user_properties.append(("unpassed", report.when))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        properties = dict(report.user_properties)
        unpassed = "unpassed" in properties or report.failed
        passed, total = properties.get("cases", (0 if unpassed else 1, 1))
        total += unpassed and passed == total  # the test failed outside its cases
        self.good[properties["group"]] += passed
        self.total[properties["group"]] += total
        if passed < total:
            self.failed.append(report.nodeid)

    def rows(self) -> dict[str, str]:
        """Return group → row of the table."""
        today = datetime.now(UTC).date().isoformat()
        return {
            group: f"| {group} | {title} | {self.good[group]} of {self.total[group]} | {today} |\n"
            for group, title in self.titles.items()
        }


def group_of(item: pytest.Item) -> tuple[str, str]:
    """Return the group of a test and its title, which the first test of the group gives."""
    marker = item.get_closest_marker("faults")
    assert marker is not None
    return marker.args[0], marker.args[1] if len(marker.args) > 1 else ""


def merged(page: str, rows: dict[str, str]) -> str:
    """Return the page with these rows in its table, ordered by group.

    >>> page = HEAD + "| F10 | old | 1 of 2 | then |\\nend"
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
    tally = Tally(groups)
    status = pytest.main([str(ROOT / "tests" / "faults"), "-m", "faults", "-p", "no:cacheprovider"], plugins=[tally])
    rows = tally.rows()
    PAGE.write_text(merged(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    print("\n" + HEAD + "".join(rows.values()))
    if tally.failed:
        print("failed:\n  " + "\n  ".join(tally.failed))
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
