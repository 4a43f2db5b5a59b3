"""Checks of tensor shapes in the built-in parts while tests run; plugins with content are hidden."""

import gc
import importlib.metadata
import os
import signal
import sysconfig
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

ROOT = Path(__file__).parents[1]
OF_PARTS = {
    "rlm_plugins.builtin": ROOT / "rlm_plugins" / "builtin",
    "rlm_algorithms": ROOT / "plugins" / "rlm-algorithms" / "src" / "rlm_algorithms",
}
WITHOUT_TENSORS = ("__init__", "environments", "wrapped_environments")
WITH_TENSORS = [
    f"{package}.{file.stem}"
    for package, folder in OF_PARTS.items()
    for file in folder.glob("*.py")
    if file.stem not in WITHOUT_TENSORS
]
install_import_hook(WITH_TENSORS, "beartype.beartype")
os.environ.setdefault("RLM_TUNING", "off")  # no test depends on the processor

MACHINE = ("fast", "engines", "audit", "view", "lab", "algorithms", "interop", "judge", "worlds")
"""Plugins of packages that the tests of the core use; the others, with rewards and environments, are hidden."""
LONG = ROOT / "tests" / "long_tests.txt"
"""Written by `benchmarks/test_seconds.py`: a test, and how many of its cases `make test` and `make test-full` run."""
SITE = Path(sysconfig.get_path("purelib"))
_entry_points = importlib.metadata.entry_points


def _without_installed_plugins(**selection: Any) -> Any:
    """Return the entry points; of group ``rlm`` only those of `MACHINE` and those that a test registers."""
    points = _entry_points(**selection)
    if selection.get("group") != "rlm":
        return points
    hidden = {point for point in points if point.dist and Path(str(point.dist.locate_file(""))) == SITE}
    return [point for point in points if point.name in MACHINE or point not in hidden]


importlib.metadata.entry_points = _without_installed_plugins


def pytest_configure(config: pytest.Config) -> None:
    """Scale the property tests by ``--rlm-examples``; no deadline, since no test depends on how fast a machine is.

    A process that was started in the background ignores SIGINT, which tests of interrupts need.
    """
    count = 3 * config.getoption("--rlm-examples")
    settings.register_profile("tests", max_examples=count, deadline=None, database=None, derandomize=True)
    settings.load_profile("tests")
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-full` what `long_tests.txt` lists: all but some evenly spaced cases, then a sample."""
    listed = [line.split() for line in LONG.read_text(encoding="utf-8").splitlines()]
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, *counts in listed:
        rest = cases.get(name, [])
        for marker, count in zip(("full", "matrix"), counts, strict=False):
            spaced = {rest[number * len(rest) // int(count)] for number in range(min(int(count), len(rest)))}
            rest = [item for item in rest if item not in spaced]
            for item in rest:
                item.add_marker(marker)


def pytest_collection_finish() -> None:
    """Exclude imported modules and collected tests from garbage collection, which trainers run often (`gc.collect`)."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in captured output: the workers of xdist cannot send them."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
