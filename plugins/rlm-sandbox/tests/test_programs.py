"""Programs without an answer pass no test, however it compares; ordinary programs give their correct results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from honest_programs import HONEST, HONEST_TESTS
from rlm_sandbox import Call, Check, Limits, Local, Program, Stdin, same, same_text
from rlm_sandbox.cheats import CHEATS, CONSTANTS, EXCEPTIONS, EXITS, OBJECTS

STYLES = json.loads(Path(__file__).with_name("comparison_styles.json").read_text(encoding="utf-8"))
"""Name → test that `add` passes, as `f`; written as tests of data sets compare."""
STYLE_SETUP = "import collections, functools, itertools, math, operator, pytest, unittest\n"
STYLE_CHECKS = [Check(source, STYLE_SETUP, ("f",)) for source in STYLES.values()]
PATIENT = Limits(seconds=30.0)


def passed(sandbox: Local, source: str, limits: Limits = PATIENT) -> list[str]:
    outputs = list(sandbox.run(Program(source.replace("NAME", "f")), STYLE_CHECKS, limits))
    return [name for name, output in zip(STYLES, outputs, strict=True) if output.status == "ok"]


def test_a_correct_program_passes_every_style(sandbox: Local) -> None:
    assert passed(sandbox, "def NAME(a, b): return a + b") == list(STYLES)


@pytest.mark.parametrize("name", [*OBJECTS, *EXCEPTIONS])
def test_no_object_or_exception_passes_a_test(name: str, sandbox: Local) -> None:
    assert passed(sandbox, CHEATS[name], Limits(seconds=1.0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*EXITS, *CONSTANTS])
def test_no_exit_or_constant_passes_a_test(name: str, sandbox: Local) -> None:
    assert passed(sandbox, CHEATS[name], Limits(seconds=1.0)) == []


SPY = """
seen = []
class Spy:
    def __getattr__(self, name): return lambda *operands: seen.append(operands) or 0
for name in "eq ne lt le gt ge contains add radd sub rsub mul rmul truediv xor mod divmod hash".split():
    setattr(Spy, f"__{name}__", lambda self, *operands: seen.append(operands) or 0)
def f(a, b): return Spy()
def everything_seen(): return str(seen)
"""


def test_a_program_receives_no_expected_value(sandbox: Local) -> None:
    checks = [Check(test.replace("5", "987123"), STYLE_SETUP, ("f",)) for test in STYLES.values()]
    outputs = list(sandbox.run(Program(SPY), [*checks, Call("everything_seen")], PATIENT))
    assert "987123" not in outputs[-1].value
    assert [output.status for output in outputs[:-1]] == ["error"] * len(checks)


@pytest.mark.parametrize(
    "check",
    [
        "assert P(1) == P(1)",
        "assert P(2) > P(1)",
        "assert sorted([P(2), P(1)])",
        "assert P(1) in [P(1)]",
        "assert make() - 3 == 0",
    ],
)
def test_programs_do_not_compare_their_own_objects(check: str, sandbox: Local) -> None:
    source = "class P:\n    def __init__(self, x): pass\ndef make(): return P(1)\n"
    for name in ("eq", "lt", "gt", "sub"):
        source += f"P.__{name}__ = lambda a, b: name == 'sub' and 0 or True\n"
    caught = f"try:\n    {check}\nexcept BaseException: pass"
    for tests in (check, caught):
        (output,) = sandbox.run(Program(source), [Check(tests, names=("P", "make"), classes=("P",))], PATIENT)
        assert "Undecidable" in output.error


def test_an_assertion_that_fails_in_a_callback_fails_the_check(sandbox: Local) -> None:
    swallows = Program("def f(visit):\n    try: visit(0)\n    except BaseException: pass\n")
    check = Check("def visit(x): assert x == 1\nf(visit)", names=("f",))
    (output,) = sandbox.run(swallows, [check], PATIENT)
    assert output.status == "error"


def test_all_inputs_together_have_a_limit(sandbox: Local) -> None:
    slow = Program("import time\ndef f(): time.sleep(0.4)\n")
    outputs = list(sandbox.run(slow, [Call("f")] * 30, Limits(seconds=5.0, total=1.0)))
    late = [output.status for output in outputs].index("late")
    assert late < 4
    assert {output.status for output in outputs[late + 1 :]} == {"skipped"}


def test_control_characters_of_errors_are_escaped(sandbox: Local) -> None:
    (output,) = sandbox.run(Program(r"def f(): raise ValueError('\x1b[2J\r\x00é')"), [Call("f")], PATIENT)
    assert output.error == r"ValueError: \x1b[2J\r\x00é"


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
