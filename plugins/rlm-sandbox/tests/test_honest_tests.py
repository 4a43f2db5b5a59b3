"""Correct programs pass the tests of their data sets, whatever objects, functions and exceptions cross."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rlm_sandbox import Check, Limits, Local, Program
from rlm_sandbox.measured.honest_tests import HONEST_TESTS

PATIENT = Limits(seconds=30.0)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Local]:
    runner = Local(1)
    yield runner
    runner.close()


@pytest.mark.parametrize("name", HONEST_TESTS)
def test_honest_program_passes_its_tests(name: str, sandbox: Local) -> None:
    case = HONEST_TESTS[name]
    names, classes = tuple(case.names.split()), tuple(case.classes.split())
    checks = [Check(source, case.setup, names, classes) for source in case.tests]
    outputs = list(sandbox.run(Program(case.source), checks, PATIENT))
    failed = [
        (check.source, output.error) for check, output in zip(checks, outputs, strict=True) if output.status != "ok"
    ]
    assert failed == []
