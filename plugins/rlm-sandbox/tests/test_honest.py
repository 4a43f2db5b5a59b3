"""Ordinary programs give their correct results."""

from __future__ import annotations

import pytest
from honest_programs import HONEST, HONEST_TESTS
from rlm_sandbox import Call, Check, Limits, Local, Program, Stdin, same, same_text

PATIENT = Limits(seconds=30.0)


@pytest.mark.parametrize("name", HONEST)
def test_honest_program_gives_its_result(name: str, sandbox: Local) -> None:
    source, cases = HONEST[name]
    outputs = list(sandbox.run(Program(source), [given for given, _ in cases], PATIENT))
    for output, (given, expected) in zip(outputs, cases, strict=True):
        if output.status == "error":
            assert isinstance(expected, str), output
            assert output.error.startswith(expected), output
        else:
            assert output.status == "ok", output
            fits = same_text if isinstance(given, Stdin) else same
            assert fits(output.value, expected), output  # type: ignore[operator]


def test_program_inherits_no_future_statement(sandbox: Local) -> None:
    """Annotations are evaluated, as where the program is run by itself; those of the sandbox's own files are not."""
    source = "def f(x: int): return f.__annotations__['x'] is int"
    (output,) = sandbox.run(Program(source), [Call("f", (1,))], PATIENT)
    assert (output.status, output.value) == ("ok", True)
    script = "def f(x: int & None): pass\nprint(1)"
    (output,) = sandbox.run(Program(script), [Stdin("")], PATIENT)
    assert output.status == "error"
    assert output.error.startswith("TypeError")


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
