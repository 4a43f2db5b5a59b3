"""Wrong programs are not paid by tests with gaps, and right programs with long output or built-in names are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rlm_code import code_tests
from wrong_programs import WRONG


def score(source: str, tests: dict[str, Any], seconds: float = 10.0) -> float | None:
    return code_tests([f"```python\n{source}\n```"], [json.dumps(tests)], seconds=seconds, total_seconds=60.0)[0]


@pytest.mark.parametrize("name", WRONG)
def test_wrong_program_is_not_paid(name: str) -> None:
    assert score(*WRONG[name], seconds=2.0) == 0.0


def test_output_may_be_as_long_as_the_expected_one() -> None:
    lines = "".join(f"{number}\n" for number in range(200_000))
    tests = {"stdin": [["200000\n", lines]]}
    assert score("for number in range(int(input())): print(number)", tests) == 1.0
    assert score("while True: print('x' * 1000)", tests) == 0.0


def test_numbers_of_numpy_count_in_calls() -> None:
    pytest.importorskip("numpy")
    tests = json.dumps({"calls": {"name": "f", "cases": [[[3], 9], [[4], 16]]}})
    text = "```python\nimport numpy as np\ndef f(x): return np.int64(x) ** 2\n```"
    assert code_tests([text], [tests], modules=["numpy"], seconds=20.0, total_seconds=60.0) == [1.0]
