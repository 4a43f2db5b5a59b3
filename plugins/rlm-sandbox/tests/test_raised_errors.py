"""Exceptions of a program in the tests: class, text and attributes are those of plain Python."""

from __future__ import annotations

import pytest
from rlm_sandbox import Check, Limits, Local, Program

CAUGHT = "try:\n    f()\nexcept {}:\n    assert {}\nelse:\n    assert False"
RAISES = {
    "of a library": ("import json\ndef f(): json.loads('{')", "json.JSONDecodeError as e", "e.pos == 1"),
    "with its own text": (
        "class Low(ValueError):\n    def __init__(self, n): self.n = n\n    def __str__(self): return f'low {self.n}'\n"
        "def f(): raise Low(2)",
        "ValueError as e",
        "str(e) == 'low 2' and e.n == 2",
    ),
    "with another text": (
        "class Low(ValueError):\n    def __str__(self): return 'low'\ndef f(): raise Low('high')",
        "ValueError as e",
        "'high' in str(e)",
    ),
    "named as a built-in one": ("class KeyError(Exception): pass\ndef f(): raise KeyError(1)", "KeyError", "True"),
    "a base of that of a library": ("def f(): raise ValueError", "json.JSONDecodeError", "True"),
}


@pytest.mark.parametrize("case", RAISES)
def test_a_check_ends_as_in_one_process(case: str, sandbox: Local) -> None:
    source, caught, condition = RAISES[case]
    program: dict[str, object] = {"__name__": "solution"}
    exec(source, program)
    check = "import decimal, json, queue\n" + CAUGHT.format(caught, condition)
    try:
        exec(check, {"f": program["f"]})
        expected = "ok"
    except Exception:
        expected = "error"
    (output,) = sandbox.run(Program(source), [Check(check, names=("f",))], Limits(seconds=20.0))
    assert output.status == expected, output.error


def test_an_error_of_unittest_skips_no_test(sandbox: Local) -> None:
    source = "import unittest\ndef f(): raise unittest.SkipTest"
    check = (
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(), 1)\n"
        "result = unittest.TestResult()\nunittest.defaultTestLoader.loadTestsFromTestCase(T).run(result)\n"
        "assert result.wasSuccessful()"
    )
    (output,) = sandbox.run(Program(source), [Check(check, names=("f",))], Limits(seconds=20.0))
    assert output.status == "error"
