"""Objects that a program returns cannot answer for the values that tests expect."""

from __future__ import annotations

import json

import pytest
from rlm_code import code_tests

FALSE = """
class False_:
    def __init__(self, size): self.size = size
    def __len__(self): return self.size
    def __iter__(self): return iter(())
    def find(self, *operands): return 0
    index = find
    def count(self, *operands): return 1
    def union(self, operand): return operand
    def difference(self, operand): return set()
    symmetric_difference = difference
    def compare(self, operand): return 0
    def removeprefix(self, operand): return ""
    def partition(self, operand): return ("", operand, "")
def f(given): return False_(len(given))
"""
CHECKS = {
    "find": "assert f('abc').find('cba') == 0",
    "partition": "assert f('abc').partition('cba')[1] == 'cba'",
    "items": "r = f([2, 1])\nassert len(r) == 2\nfor one, other in zip(r, [1, 2]): assert one == other",
    "all": "r = f([2, 1])\nassert len(r) == 2 and all(one == other for one, other in zip(r, [1, 2]))",
}


def paid(source: str, check: str, names: list[str], modules: tuple[str, ...] = ()) -> float | None:
    tests = json.dumps({"asserts": {"names": names, "checks": [check]}})
    text = f"```python\n{source}\n```"
    return code_tests([text], [tests], modules=list(modules), seconds=20.0, total_seconds=60.0)[0]


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_an_object_does_not_answer_for_values(check: str) -> None:
    assert paid(FALSE, check, ["f"]) == 0.0


@pytest.mark.parametrize("call", ["np.allclose(f(2), 1.5)", "np.isclose(f(2), 1.5).all()", "np.allclose(f(2), [1.5])"])
def test_an_empty_list_is_not_close_to_a_number(call: str) -> None:
    pytest.importorskip("numpy")
    check = f"import numpy as np\nassert {call}"
    assert paid("def f(x): return []", check, ["f"], ("numpy",)) == 0.0
    assert paid("def f(x): return [1.5]", check, ["f"], ("numpy",)) == 1.0
