"""Wrong programs are not paid by tests with gaps, and right programs with long output or built-in names are.

Names that are missing, classes of exceptions, tiny numbers, faults, objects that answer for values: each has tests of its own.
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

import json
from typing import Any

import pytest
from rlm_coding import code_tests


def _asserts(check: str, names: str, setup: str = "") -> dict[str, Any]:
    return {"asserts": {"setup": setup, "names": names.split(), "checks": [check]}}


def _calls(*cases: tuple[list[Any], Any]) -> dict[str, Any]:
    return {"calls": {"name": "f", "cases": [*cases]}}


_MISSING = {
    "unequal": "assert LIMIT != 0",
    "callable": "assert callable(LIMIT)",
    "not in": "assert LIMIT not in (0, 1)",
    "no int": "assert not isinstance(LIMIT, int)",
    "caught": "try: LIMIT(1)\nexcept TypeError: pass",
}
_ACCOUNT = "class Account:\n    Error = {}\n    def draw(self, x): return None\n"
_CATCH = "try:\n    Account().draw(1)\n    assert False\nexcept Account.Error: pass"
_SUPPRESS = (
    "import contextlib\nwith contextlib.suppress(Account.Error):\n    Account().draw(1)\n    raise AssertionError"
)
_CAUGHT = "try:\n    f(1)\n    assert False\nexcept {}: pass"
_CONTEXT = "class C:\n    def __enter__(s): return 0\n    def __exit__(s, *a): return True\ndef f(x): return C()"
_MANAGER = "import contextlib\n@contextlib.contextmanager\ndef f(x):\n    try: yield 0\n    except BaseException: pass"
_SWALLOW = {
    "with": "with f(3) as v: assert v == 9",
    "stack": "import contextlib\nwith contextlib.ExitStack() as s: assert s.enter_context(f(3)) == 9",
}
_PREDICATE = "class S:\n    {} = lambda *a: True\ndef f(x): return S()"
_SEND = (
    "import json, os, time\ndef f(x):\n    data = json.dumps({'value': {'$object': [0, 'exception', ['AssertionError']]}})\n"
    "    os.write(3, len(data).to_bytes(4, 'big') + data.encode()); time.sleep(9)\n"
)

_FALSE = """
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
_CHECKS = {
    "find": "assert f('abc').find('cba') == 0",
    "partition": "assert f('abc').partition('cba')[1] == 'cba'",
    "items": "r = f([2, 1])\nassert len(r) == 2\nfor one, other in zip(r, [1, 2]): assert one == other",
    "all": "r = f([2, 1])\nassert len(r) == 2 and all(one == other for one, other in zip(r, [1, 2]))",
}
WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"missing, {name}": ("x = 1", _asserts(check, "LIMIT other")) for name, check in _MISSING.items()},
    "missing, built-in": ("x = 1", _asserts("assert sum([1, 2]) == 3", "sum")),
    "missing, stub": ("x = 1", _asserts("assert f(3) == 9", "f", "def f(x): return x * x")),
    **{
        f"caught {name} {number}": (_ACCOUNT.format(name), _asserts(check, "Account"))
        for name in ("Exception", "AssertionError", "BaseException", "type('Own', (AssertionError,), {}).__base__")
        for number, check in enumerate((_CATCH, _SUPPRESS))
    },
    "caught result": ("def e(): return Exception\ndef f(x): pass", _asserts(_CAUGHT.format("e()"), "e f")),
    "caught list": ("E = [ValueError, Exception]\ndef f(x): pass", _asserts(_CAUGHT.format("tuple(E)"), "E f")),
    "caught message": (_SEND, _asserts("E = f(0)\ntry: assert False\nexcept E: pass", "f")),
    **{
        f"swallowed {name}, {number}": (source, _asserts(check, "f"))
        for name, check in _SWALLOW.items()
        for number, source in enumerate((_CONTEXT, _MANAGER))
    },
    **{
        f"predicate {call}": (_PREDICATE.format(call.partition("(")[0]), _asserts(f"assert f(3).{call}", "f"))
        for call in (
            "startswith('a')",
            "endswith('b')",
            "isupper()",
            "issubset({1})",
            "isdisjoint({2})",
            "is_integer()",
        )
    },
    **{f"an object, {name}": (_FALSE, _asserts(check, "f")) for name, check in _CHECKS.items()},
    "0 for a tiny number": ("def f(x): return 0.0", _calls(([3], 3e-12), ([5], 5e-12))),
    "sign of a tiny number": ("def f(x): return -6.6e-34", _calls(([3], 6.6e-34))),
}


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


def of_numpy(source: str, tests: dict[str, Any]) -> float | None:
    pytest.importorskip("numpy")
    text = f"```python\nimport numpy as np\n{source}\n```"
    return code_tests([text], [json.dumps(tests)], modules=["numpy"], seconds=20.0, total_seconds=60.0)[0]


def test_numbers_of_numpy_count_in_calls() -> None:
    assert of_numpy("def f(x): return np.int64(x) ** 2", _calls(([3], 9), ([4], 16))) == 1.0


@pytest.mark.parametrize("call", ["np.allclose(f(2), 1.5)", "np.isclose(f(2), 1.5).all()", "np.allclose(f(2), [1.5])"])
def test_an_empty_list_is_not_close_to_a_number(call: str) -> None:
    check = _asserts(f"import numpy as np\nassert {call}", "f")
    assert of_numpy("def f(x): return []", check) == 0.0
    assert of_numpy("def f(x): return [1.5]", check) == 1.0
