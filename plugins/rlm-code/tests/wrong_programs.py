"""Wrong programs and tests that do not cover everything: names that are missing, classes of exceptions, tiny numbers, faults.

Each has tests of its own: (source, column `tests`).
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

from typing import Any


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
    "0 for a tiny number": ("def f(x): return 0.0", _calls(([3], 3e-12), ([5], 5e-12))),
    "sign of a tiny number": ("def f(x): return -6.6e-34", _calls(([3], 6.6e-34))),
}
