"""Objects that a program returns cannot answer for the values that tests expect; objects of right programs are used."""

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
METHODS = """
from collections import namedtuple
def f(given): return namedtuple("T", "startswith issubset index")(lambda *operands: True, ITEM, lambda *operands: 0)
"""
CHECKS = {
    "find": "assert f('abc').find('cba') == 0",
    "count": "assert f('abc').count('cba') == 1",
    "partition": "assert f('abc').partition('cba')[1] == 'cba'",
    "union": "assert f([2, 1]).union([1, 2]) == [1, 2]",
    "compare": "from decimal import Decimal\nassert f([2, 1]).compare(Decimal(3)) == 0",
    "items": "r = f([2, 1])\nassert len(r) == 2\nfor one, other in zip(r, [1, 2]): assert one == other",
    "all": "r = f([2, 1])\nassert len(r) == 2 and all(one == other for one, other in zip(r, [1, 2]))",
}
NAMED = ("assert f('abc').startswith('cba')", "assert f([2, 1]).issubset([1, 2])", "assert f('abc').index('cba') == 0")
CLASSES = """
class Words:
    def __init__(self, words): self.words = list(words)
    def __len__(self): return len(self.words)
    def __iter__(self): return iter(self.words)
    def add(self, word): self.words.append(word)
    def find(self, word): return self.words.index(word)
    def count(self): return len(self.words)
class Count:
    def __init__(self): self.number = 0
    def __iter__(self): return self
    def __next__(self):
        self.number += 1
        if self.number > 3: raise StopIteration
        return self.number
def read(text): return Words(text.split())
"""
RIGHT = (
    "w = read('a b')\nassert len(w) == 2\nw.add('c')\nassert list(w) == ['a', 'b', 'c'] and len(w) == 3",
    "assert read('a b').count() == 2",
    "w = Words(['a', 'b'])\nassert w.find('b') == 1",
    "assert list(Count()) == [1, 2, 3] and next(iter(Count())) == 1",
)


def paid(source: str, check: str, names: list[str], modules: tuple[str, ...] = ()) -> float | None:
    tests = json.dumps({"asserts": {"names": names, "checks": [check]}})
    text = f"```python\n{source}\n```"
    return code_tests([text], [tests], modules=list(modules), seconds=20.0, total_seconds=60.0)[0]


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_an_object_does_not_answer_for_values(check: str) -> None:
    assert paid(FALSE, check, ["f"]) == 0.0


@pytest.mark.parametrize("item", ["lambda *operands: True", "bool", "ValueError"])
@pytest.mark.parametrize("check", NAMED)
def test_a_field_of_a_named_tuple_is_no_method(check: str, item: str) -> None:
    assert paid(METHODS.replace("ITEM", item), check, ["f"]) == 0.0


@pytest.mark.parametrize("check", RIGHT)
def test_objects_of_right_programs_are_used(check: str) -> None:
    assert paid(CLASSES, check, ["read", "Words", "Count"]) == 1.0


@pytest.mark.parametrize("call", ["np.allclose(f(2), 1.5)", "np.isclose(f(2), 1.5).all()", "np.allclose(f(2), [1.5])"])
def test_an_empty_list_is_not_close_to_a_number(call: str) -> None:
    pytest.importorskip("numpy")
    check = f"import numpy as np\nassert {call}"
    assert paid("def f(x): return []", check, ["f"], ("numpy",)) == 0.0
    assert paid("def f(x): return [1.5]", check, ["f"], ("numpy",)) == 1.0
