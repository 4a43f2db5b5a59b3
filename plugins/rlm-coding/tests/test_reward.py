"""code_tests: extraction of the program, contract, each kind of test, each knob, and attempts to cheat."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rlm_coding import code_tests
from rlm_coding.cases import BadTests, parse_tests
from rlm_coding.reward import Block, Unfenced, program
from rlm_testing import conformance

from rlm_plugins.errors import PartError

ADD = {"calls": {"name": "add", "cases": [[[1, 2], 3], [[2, 2], 4], [[0, 5], 5], [["a", "b"], "ab"]]}}
STDIN = {"stdin": [["1 2\n", "3\n"], ["5 5", "10"]]}
ASSERTS = {
    "asserts": {
        "setup": "import math",
        "names": ["add"],
        "checks": ["assert add(1, 2) == 3", "assert math.isclose(add(.1, .2), .3)"],
    }
}
CHECKER = {
    "checker": {
        "source": "def check(given, output): return sorted(output.split()) == sorted(given.split())",
        "inputs": ["1 2 3", "b a"],
    }
}
RIGHT = "def add(a, b):\n    return a + b\n"
HALF = "def add(a, b):\n    return a * b if b == 2 else 9 if a == 0 else a + b\n"
SOLUTION_LIMITS = {"seconds": 60.0}


def fenced(source: str) -> str:
    return f"Here it is.\n```python\n{source}\n```"


test_laws = conformance(
    "rlm_rewards",
    code_tests,
    knobs=SOLUTION_LIMITS,
    columns={
        "tests": [json.dumps(ADD), json.dumps(STDIN), json.dumps(ASSERTS), None],
        "completions": [
            fenced(RIGHT),
            fenced("print(sum(map(int, input().split())))"),
            fenced("1/0"),
            "no program",
            fenced(HALF),
        ],
    },
)


def score(source: str, tests: Any, **knobs: Any) -> float | None:
    (found,) = code_tests(
        [fenced(source)], [tests if isinstance(tests, str) else json.dumps(tests)], **{**SOLUTION_LIMITS, **knobs}
    )
    return found


@pytest.mark.parametrize(
    ("source", "tests", "all_of_them", "share"),
    [
        (RIGHT, ADD, 1, 1),
        (HALF, ADD, 0, 0.5),
        ("class Solution:\n    def add(self, a, b): return a + b", ADD, 1, 1),
        ("print(sum(map(int, input().split())))", STDIN, 1, 1),
        ("print(3)", STDIN, 0, 0.5),
        ("print(3, end='  \\n\\n')", STDIN, 0, 0.5),
        (RIGHT, ASSERTS, 1, 1),
        ("def add(a, b): return 3", ASSERTS, 0, 0.5),
        ("print(*input().split()[::-1])", CHECKER, 1, 1),
        ("print('1 2 3')", CHECKER, 0, 0.5),
        ("def add(a, b", ADD, 0, 0),
        ("", ADD, 0, 0),
    ],
)
def test_each_kind_of_test(source: str, tests: Any, all_of_them: float, share: float) -> None:
    assert score(source, tests) == all_of_them
    assert score(source, tests, credit="share") == share


def test_prelude_precedes_the_program() -> None:
    tests = {"prelude": "from math import *", "calls": {"name": "f", "cases": [[[], 2]]}}
    assert score("def f(): return floor(2.5)", tests) == 1
    assert score("from __future__ import annotations\nimport math\ndef f(): return math.floor(2.5)", tests) == 1


def test_limits_of_time_and_memory() -> None:
    sleeps = "import time\ndef add(a, b):\n    time.sleep(1.5 if a == 2 else 0)\n    return a + b"
    assert score(sleeps, ADD, seconds=30.0) == 1
    assert score(sleeps, ADD, seconds=0.7, credit="share") in (
        0.25,
        0.0,
    )  # what comes after the late one counts as failed
    large = "def add(a, b):\n    x = bytearray(300 << 20)\n    return a + b"
    assert score(large, ADD) == 1
    assert score(large, ADD, megabytes=128) == 0


def test_modules_must_be_listed() -> None:
    pytest.importorskip("numpy")
    source = "import numpy as np\ndef add(a, b): return np.array([a, b], dtype=object).sum()"
    assert score(source, ADD) == 0
    assert score(source, ADD, modules=["numpy"], workers=1) == 1


@pytest.mark.parametrize(
    "source",
    [
        "class Yes(int):\n    def __eq__(s, o): return True\n    __hash__ = int.__hash__\ndef add(a, b): return Yes(0)",
        "import os\nos._exit(0)",
        "import gc\nfor o in gc.get_objects():\n    if type(o) is list: o.append(True)\ndef add(a, b): return 0",
    ],
)
def test_program_cannot_fake_success(source: str) -> None:
    for tests in (ADD, ASSERTS, STDIN):
        assert score(source, tests) == 0


def test_tests_may_be_a_mapping_or_missing() -> None:
    assert code_tests([fenced(RIGHT)] * 4, [ADD, None, "", json.dumps(ADD)], **SOLUTION_LIMITS) == [
        1.0,
        None,
        None,
        1.0,
    ]


def test_outcomes_are_logged() -> None:
    logged: dict[str, float] = {}
    sources = [
        RIGHT,
        "def add(a, b): return 0",
        "import os\nos._exit(1)",
        "1/0",
        "def add(a, b):\n    while True: pass",
    ]
    code_tests([*map(fenced, sources), "none"], [json.dumps(ADD)] * 6, logged.__setitem__, seconds=5.0)
    sixth = pytest.approx(1 / 6)
    assert logged == {f"code_{name}": sixth for name in ("late", "died", "error", "wrong", "missing")}


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("{", "not JSON"),
        ({}, "got none"),
        ({**ADD, **STDIN}, "calls"),
        ({"stdin": [["1", 2]]}, "expected a string, got 2"),
        ({"checker": {"source": "x = 1", "inputs": [""]}}, "no check"),
    ],
)
def test_malformed_tests_are_part_errors(tests: Any, message: str) -> None:
    with pytest.raises(BadTests, match=message):
        parse_tests(tests)
    with pytest.raises(PartError, match=r"sample 1.*" + message):
        code_tests([fenced(RIGHT)] * 2, [ADD, tests])


ONE, TWO = "```python\nx = 1\n```", "```py\nx = 2\n```"


@pytest.mark.parametrize(
    ("text", "block", "unfenced", "found"),
    [
        (ONE, "last", "wrong", "x = 1\n"),
        (f"{ONE}\nbetter:\n{TWO}", "last", "wrong", "x = 2\n"),
        (f"{ONE}\nbetter:\n{TWO}", "first", "wrong", "x = 1\n"),
        (f"{ONE}\nbetter:\n{TWO}", "only", "wrong", None),
        (f"{ONE}\n```python\nx = ", "last", "wrong", None),
        ("```python\nx = 1", "last", "whole", None),
        ("````python\n'''\n```\n```\n'''\n````", "last", "wrong", "'''\n```\n```\n'''\n"),
        ("- ```python\n  x = 1\n  ```", "last", "wrong", "x = 1\n"),
        ("x = 1", "last", "wrong", None),
        ("x = 1", "last", "whole", "x = 1"),
        (f"<think>{ONE}</think>{TWO}", "last", "wrong", "x = 2\n"),
        (f"<think>{ONE}", "last", "wrong", None),
        (f"thought{ONE}</think>{TWO}", "last", "wrong", "x = 2\n"),
    ],
)
def test_program_extraction(text: str, block: Block, unfenced: Unfenced, found: str | None) -> None:
    assert program(text, block, unfenced) == found


USED = [
    "assert add(1, 2) == 3",
    "x = add == 3",
    "add = add(1, 2)",
    "class A:\n    def add(self): pass",
    "f(\n add=add)",
]
SUM, METHOD = "def add(a, b): return a + b", "class Solution:\n    def add(self, a, b): return "


@pytest.mark.parametrize("defined", [SUM, f"{METHOD}a + b", f"if True:\n    {SUM}"])
@pytest.mark.parametrize("used", USED)
def test_a_block_that_uses_the_function_is_no_program(defined: str, used: str) -> None:
    last, wrong = f"{fenced(defined)}\nfor example\n{fenced(used)}", fenced("add = max")
    assert code_tests([f"{wrong}\nbetter:\n{last}", fenced(used), last], [ADD] * 3) == [1.0, 0.0, 1.0]
    assert code_tests([f"{wrong}\n{last}", f"{last}\n{wrong}"], [ADD] * 2, block="first") == [0.0, 1.0]
    assert code_tests([f"{wrong}\n{last}", last], [ADD] * 2, block="only") == [0.0, 1.0]


def test_a_program_has_what_it_uses_of_earlier_blocks() -> None:
    parts = ["import operator", "def plus(a, b):\n    return operator.add(a, b)\n\nprint(undefined)", "add = plus"]
    assert code_tests(["\n".join(map(fenced, parts)), fenced(parts[2])], [ADD] * 2) == [1.0, 0.0]
    wrapped = f"{fenced(SUM)}\n{fenced(METHOD + 'add(a, b)')}"
    untagged = f"```\n{SUM}\n```\n{fenced('add(1, 2)')}"
    later = f"{fenced(SUM)}\nor\n{fenced('from operator import sub as add')}"
    broken = f"{fenced(SUM)}\n{fenced('def add(a, b) return 0')}"
    assert code_tests([wrapped, untagged, later, broken], [ADD] * 4) == [1.0, 1.0, 0.0, 0.0]
