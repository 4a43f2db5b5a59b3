"""Data sets: local files in each preset's format are parsed, checked and split."""

# ruff: noqa: E501  (rows of data sets, as they are)
from __future__ import annotations

import atexit
import base64
import json
import os
import pickle
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from rlm_coding import code_tests
from rlm_coding.cases import BadTests
from rlm_coding.environments import ENVIRONMENTS, INSTRUCTION, unpack_cases
from rlm_coding.toy_programs import code_drills
from rlm_testing import conformance

from rlm_plugins.errors import RecipeError


def packed(cases: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


HUMAN_EVAL = {
    "task_id": "HumanEval/32",
    "prompt": 'import math\n\n\ndef poly(xs: list, x: float):\n    """Value of a polynomial."""\n    return sum(c * math.pow(x, i) for i, c in enumerate(xs))\n\n\n'
    'def find_zero(xs: list):\n    """A zero of it.\n    >>> round(find_zero([1, 2]), 2)\n    -0.5\n    """\n',
    "canonical_solution": "    return -xs[0] / xs[1]\n",
    "test": "METADATA = {}\n\n\ndef check(candidate):\n    import math\n    for xs in ([1, 2], [3, -4]):\n        assert math.isclose(poly(xs, candidate(xs)), 0, abs_tol=1e-4)\n",
    "entry_point": "find_zero",
}
MBPP = {
    "task_id": 602,
    "text": "Write a python function to find the area of a circle.",
    "code": "import math\r\ndef area(r):\r\n  return math.pi * r * r",
    "test_list": ["assert math.isclose(area(1), math.pi)", "assert area(0) == 0", "assert set([area(0)]) == {0}"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
KODCODE = {
    "question": "Write a class Stack, and a function drain.",
    "solution": "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n    def pop(self):\n        return self.items.pop()\ndef drain(n): return list(range(n))[::-1]",
    "test": "import pytest\nfrom solution import Stack, drain\n\ndef test_stack():\n    s = Stack()\n    s.push(1)\n    assert s.pop() == 1\n    with pytest.raises(IndexError):\n        s.pop()\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_drain(n):\n    assert len(drain(n)) == n and drain(n)[-1] == 0\n",
    "test_info": [
        {"function_name": "drain", "function_declaration": "def drain(n):", "docstring": "", "parameter_list": "(n)"}
    ],
    "style": "instruct",
}
LIVE_STDIN = {
    "question_title": "Sum",
    "question_content": "Add two numbers.",
    "starter_code": "",
    "metadata": "{}",
    "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
    "private_test_cases": packed([{"input": "3 4\n", "output": "7\n", "testtype": "stdin"}]),
}
LIVE_CALLS = {
    **LIVE_STDIN,
    "question_content": "Add the numbers of a list.",
    "starter_code": "class Solution:\n    def total(self, nums: List[int], start: int) -> int:\n        ",
    "metadata": json.dumps({"func_name": "total"}),
    "public_test_cases": json.dumps([{"input": "[1, 2]\n0", "output": "3", "testtype": "functional"}]),
    "private_test_cases": packed([{"input": "[]\n5", "output": "5", "testtype": "functional"}]),
}
LEETCODE = {
    "query": "Write the class Solution.",
    "prompt": "from typing import *\n",
    "completion": "class Solution:\n    def twoSum(self, nums: List[int], target: int):\n        return [0, target - nums[0]]",
    "test": "def check(candidate):\n    assert candidate(nums = [2, 7], target = 9) == [0, 7]\n    assert candidate([1], 2) == [0, 1]\n",
    "entry_point": "Solution().twoSum",
}
CODE_R1 = [
    {"prompt": [{"role": "user", "content": text}], "reward_model": {"ground_truth": json.dumps(truth)}}
    for text, truth in {
        "Sort.": {
            "functional": "def check(candidate):\n    assert candidate(a=[2, 1]) == [1, 2]\n\n\ncheck(Solution().ordered)"
        },
        "Add.": {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3", "7"]},
    }.items()
]
DEEPCODER: list[dict[str, Any]] = [
    {"problem": "Add.", "tests": json.dumps([{"input": "1 2\n", "output": "3", "type": "stdin_stdout"}])},
    {"problem": "Total.", "tests": json.dumps({"fn_name": "total", "inputs": [[[1, 2]]], "outputs": [[3]]})},
    {
        "problem": "Twice.",
        "tests": json.dumps(
            [{"input": "2\n[1]", "output": "[1, 1]", "testtype": "functional", "metadata": {"func_name": "twice"}}]
        ),
    },
]
ADD = "print(sum(map(int, input().split())))"
SHAPES: dict[str, tuple[list[dict[str, Any]], list[str], list[str]]] = {
    "human_eval": ([HUMAN_EVAL], ["def find_zero(xs):\n    return -xs[0] / xs[1]"], ["def poly(xs, x): return 0\ndef find_zero(xs): return 9"]),
    "mbpp": ([MBPP], [MBPP["code"]], ["class math:\n    pi = 0\n    isclose = lambda *a: True\ndef area(r): return 0"]),
    "kodcode": ([KODCODE], [KODCODE["solution"]], ["class Stack: pass\ndef drain(n): return [0] * n"]),
    "livecodebench": (
        [LIVE_STDIN, LIVE_CALLS],
        ["a, b = map(int, input().split())\nprint(a + b)", "class Solution:\n    def total(self, nums: List[int], start): return sum(nums) + start"],
        ["print(3)", "def total(nums, start): return 3"],
    ),
    "deepcoder": (
        DEEPCODER,
        [ADD, "def total(x): return sum(x)", "class Solution:\n    def twice(self, n, x): return x * n"],
        ["print(4)", "def total(x): return 4", "def twice(n, x): return x"],
    ),
    "code_r1": (CODE_R1, ["class Solution:\n    def ordered(self, a): return sorted(a)", ADD], ["class Solution:\n    def ordered(self, a): return a", "print(3)"]),
    "leetcode": ([LEETCODE], [LEETCODE["completion"]], ["class Solution:\n    def twoSum(self, nums, target): return [0, 7]"]),
    "code_table": (
        [{"problem": "Echo.", "tests": json.dumps({"stdin": [["x", "x"]]}), "solution": "print(input())"}],
        ["print(input())"],
        ["print(1)"],
    ),
}  # fmt: skip


def write_table(folder: Path, rows: list[dict[str, Any]]) -> str:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_preset_parses_its_format(name: str, tmp_path: Path) -> None:
    rows, right, wrong = SHAPES[name]
    environment_spec = ENVIRONMENTS[name](path=write_table(tmp_path, rows))
    assert len(environment_spec.train) == len(rows)
    (message,) = environment_spec.train[0]["prompt"]
    assert message["content"].endswith(INSTRUCTION)
    tests = [row["tests"] for row in environment_spec.train]
    for programs, score in ((right, 1.0), (wrong, 0.0)):
        texts = [f"```python\n{source}\n```" for source in programs]
        assert code_tests(texts, tests, seconds=60.0) == [score] * len(rows), score


def test_sanitized_mbpp_format(tmp_path: Path) -> None:
    row = {
        "prompt": MBPP["text"],
        "code": MBPP["code"],
        "test_list": MBPP["test_list"],
        "test_imports": ["import math"],
    }
    environment_spec = ENVIRONMENTS["mbpp"](path=write_table(tmp_path, [row]))
    assert "assert math.isclose(area(1), math.pi)" in environment_spec.train[0]["prompt"][0]["content"]


TABLE = [{"problem": f"Write {n}.", "tests": {"stdin": [["", str(n)]]}, "solution": f"print({n})"} for n in range(20)]


@pytest.mark.parametrize(
    ("name", "row", "error_text"),
    [
        ("code_table", {"problem": "Broken.", "tests": {"stdin": []}}, "row 1: there are no cases"),
        ("code_table", {"problem": "Wrong.", "tests": {"stdin": [["", "2"]]}, "solution": "print(3)"}, r"fails its tests in row 1 \(wrong\)"),
        ("mbpp", {**MBPP, "text": "Other.", "test_list": ["assert area("]}, "row 1: the test is not Python"),
        ("kodcode", {**KODCODE, "question": "Other.", "test": "from solution import f"}, "row 1: there are no test functions"),
        ("human_eval", {**HUMAN_EVAL, "prompt": HUMAN_EVAL["prompt"] + "    ", "test": "x = 1"}, "row 1: the test defines no check"),
        ("livecodebench", {**LIVE_STDIN, "question_content": "Other.", "private_test_cases": "!!"}, "row 1: the private tests cannot be unpacked"),
    ],
)  # fmt: skip
def test_malformed_tests_are_an_error_naming_the_row(
    name: str, row: dict[str, Any], error_text: str, tmp_path: Path
) -> None:
    first = TABLE[0] if name == "code_table" else SHAPES[name][0][0]
    with pytest.raises(RecipeError, match=error_text):
        ENVIRONMENTS[name](path=write_table(tmp_path, [first, row]), split="train")


def test_skip_removes_malformed_rows(tmp_path: Path) -> None:
    path = write_table(tmp_path, [*TABLE, {"problem": "Broken.", "tests": {"stdin": None}, "solution": ""}])
    assert len(ENVIRONMENTS["code_table"](path=path, skip=1, tried=0).train) == 20


def test_held_out_questions_are_not_in_training(tmp_path: Path) -> None:
    environment_spec = ENVIRONMENTS["code_table"](path=write_table(tmp_path, [*TABLE, *TABLE]), test_rows=5, tried=1)
    tested = {row["question"] for row in environment_spec.test}
    assert (len(environment_spec.train), len(tested)) == (15, 5)
    assert not tested & {row["question"] for row in environment_spec.train}


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("exit 3",)


def test_pickle_with_code_is_rejected() -> None:
    evil = base64.b64encode(zlib.compress(pickle.dumps(Payload()))).decode()
    with pytest.raises(BadTests, match="it requires the class"):
        unpack_cases(evil)
    assert unpack_cases(packed([{"input": "1"}])) == [{"input": "1"}]


def laws(name: str) -> Any:
    """Return the contract tests of a preset on a table in its format."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    knobs = {"path": write_table(folder, SHAPES[name][0]), "split": "train", "tried": 0}
    return conformance("rlm_environments", ENVIRONMENTS[name], knobs=knobs)


test_laws_of_livecodebench = laws("livecodebench")
test_laws_of_code_table = laws("code_table")
test_laws_of_code_drills = conformance("rlm_environments", code_drills)


def test_slip_sets_the_error_rate_of_demonstrations() -> None:
    for slip, least, most in ((0.0, 1.0, 1.0), (0.5, 0.4, 0.65)):
        rows = code_drills(train_rows=60, slip=slip).train
        found = code_tests(
            [row["demonstration"] for row in rows], [row["tests"] for row in rows], unfenced="whole", seconds=60.0
        )
        assert least <= sum(score or 0.0 for score in found) / 60 <= most
