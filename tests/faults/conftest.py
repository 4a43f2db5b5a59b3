"""The fixture `cases`: many cases of a fault in one test. Group and CPU seconds of each test, for `run_faults.py`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

Case = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def cases(record_property: Callable[[str, object], None]) -> Iterator[Case]:
    """Return a context manager for ``with cases("write 3 fails"):``; a failed case does not stop the others."""
    total, failures = 0, []

    @contextmanager
    def case(name: str) -> Iterator[None]:
        nonlocal total
        total += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")

    yield case
    record_property("cases", (total - len(failures), total))
    assert total, "no case was tried"
    assert not failures, "\n".join([f"{len(failures)} of {total} cases failed:", *failures])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--without-results-in FILE``: only tests without a line in this file are run."""
    parser.addoption("--without-results-in", type=Path, metavar="FILE")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that have a result."""
    file = config.getoption("--without-results-in", None)
    if file is None or not file.exists():
        return
    have = {json.loads(line)["test"] for line in file.read_text(encoding="utf-8").splitlines()}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in have])
    items[:] = [item for item in items if item.nodeid not in have]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count the CPU seconds of a test from its set-up on, with those of its child processes."""
    item.stash[_START] = _cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Record group, CPU seconds, and each phase that did not pass; a skipped case counts as not passed."""
    report = yield
    if not report.passed:
        item.user_properties.append(("unpassed", report.when))
    if report.when == "teardown" and (marker := item.get_closest_marker("faults")):
        report.user_properties = [
            *item.user_properties,
            ("group", marker.kwargs["group"]),
            ("cpu", _cpu_seconds() - item.stash[_START]),
        ]
    return report


_START = pytest.StashKey[float]()


def _cpu_seconds() -> float:
    return sum(os.times()[:4])
