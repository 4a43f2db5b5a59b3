"""Programs of further classes that try to pass tests without an answer.

They are bare builtins, containers of the standard library, hooks of the interpreter, and exceptions that act. Others use
state between calls, source text, output of scripts, and numbers near the right one. Each defines ``f``, whose right value is
the square of its argument; a script must print the square of the number it reads.
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

from typing import Any

_EQUAL = "\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\n    __hash__ = None\n"

BUILTINS = {
    f"is_{name}": f"f = {name}\n"
    for name in [
        "object",
        "print",
        "eval",
        "zip",
    ]
}
CONTAINERS = {
    f"equal_{name.rpartition('.')[2]}": f"import collections, types, array, datetime, uuid, pathlib, re\nclass C({name}):{_EQUAL}def f(*a, **k): return C{made}\n"
    for name, made in {
        "collections.UserString": "('')",
        "collections.UserList": "()",
        "collections.Counter": "()",
        "types.SimpleNamespace": "()",
        "datetime.datetime": "(1, 1, 1)",
    }.items()
}
CLASSES = {
    "getattribute": "class O:\n    def __getattribute__(s, n): return (lambda *a: True) if n != '__class__' else int\ndef f(*a): return O()\n",
    "number_protocol": "class N:\n    __index__ = __int__ = __trunc__ = __floor__ = __ceil__ = lambda s: 4\n    __float__ = lambda s: 4.0\n    __complex__ = lambda s: 4j\n    __eq__ = lambda s, o: True\n    __hash__ = lambda s: 4\ndef f(*a): return N()\n",
    "partial_of_eq": "import functools, operator\nf = functools.partial(operator.eq, 4)\n",
}
HOOKS = {
    "except_hooks": "import sys, threading\nsys.excepthook = sys.unraisablehook = threading.excepthook = lambda *a: sys.exit(0)\ndef f(*a): raise ValueError\n",
    "copyreg": "import copyreg\nclass O:\n    def __eq__(s, o): return True\ncopyreg.pickle(O, lambda o: (int, ('4',)))\ndef f(*a): return O()\n",
    "module_getattr": "import sys\nclass M(type(sys)):\n    __getattr__ = lambda s, n: lambda *a: True\nsys.modules[__name__].__class__ = M if __name__ in sys.modules else object\ndef f(*a): return 0\n",
}
EXCEPTIONS = {
    "exception_str": "class E(Exception):\n    def __str__(s): raise SystemExit(0)\n    __repr__ = __str__\ndef f(*a): raise E\n",
    "exception_in_del": "import sys\nclass O:\n    def __del__(s): sys.exit(0)\ndef f(*a):\n    O()\n    return 0\n",
}
STATES = {
    "generator_that_echoes": "def f(*a):\n    got = yield a[0] + 1\n    while True: got = yield got\n",
    "own_pytest": "import sys, types, contextlib\nm = types.ModuleType('pytest')\nm.raises = lambda *a, **k: contextlib.suppress(BaseException)\nsys.modules['pytest'] = m\ndef f(*a): return 0\n",
    "request_emptied": "import sys\ndef f(*a):\n    frame = sys._getframe().f_back\n    while frame:\n        for v in list(frame.f_locals.values()):\n            if isinstance(v, dict) and 'args' in v:\n                v.clear()\n                v['value'] = True\n        frame = frame.f_back\n    return 0\n",
    "list_that_grows": "class L(list):\n    def __iter__(s):\n        s.append(4)\n        return list.__iter__(s)\ndef f(*a): return L()\n",
    "previous_argument": "last = 0\ndef f(x, *a):\n    global last\n    last, old = x, last\n    return old\n",
    "echo": "def f(*a): return a\n",
    "all_guesses": "def f(x, *a): return [x + x, x * 3, 0, 1, None]\n",
    "nan": "def f(*a): return float('nan')\n",
}  # fmt: skip

FURTHER = {**BUILTINS, **CONTAINERS, **CLASSES, **HOOKS, **EXCEPTIONS, **STATES}
"""Name → program."""

SCRIPTS = {
    "all_numbers": "print(*range(100))\n",
    "escape": "print('\\x1b[8m5\\x1b[0m')\n",
    "verdict": "print('{\"passed\": true}')\nraise SystemExit(0)\n",
    "endless": "while True: print(4)\n",
}
"""Name → script; right would be the square of the number on the first line."""
SCRIPT_TESTS = {
    "stdin": {"stdin": [["2\n", "4\n"], ["5\n", "25\n"], ["7\n", "49\n"]]},
    "checker": {
        "checker": {
            "source": "def check(given, output):\n    return abs(float(output) - float(given) ** 2) < 1e-6\n",
            "inputs": ["2\n", "5\n", "7\n"],
        }
    },
}

COMPLETIONS = {
    "two_blocks": "```python\ndef f(x): return x * x\n```\n```python\ndef f(x): return 0\n```",
    "in_thoughts": "<think>```python\ndef f(x): return x * x\n```</think> I do not know.",
    "never_closed_thoughts": "<think>```python\ndef f(x): return x * x\n```",
    "other_language": "```text\ndef f(x): return x * x\n```\n```python\nf = None\n```",
    "no_fence": "def f(x): return x * x",
}
"""Name → completion whose last closed block after the thoughts is no right program."""

LARGE: dict[str, dict[str, Any]] = {
    "large calls": {"calls": {"name": "f", "cases": [[[10**9], 10**18], [[2**31 + 1], (2**31 + 1) ** 2], [[3], 9]]}},
    "large asserts": {"asserts": {"setup": "", "names": ["f"], "checks": ["assert f(10**9) == 10**18", "assert f(2**31 + 1) == (2**31 + 1)**2", "assert f(3) == 9"]}},
}  # fmt: skip
"""Way of testing → column `tests`, with values that no float holds."""
NEAR = {
    f"near_{name}": f"import math\nfrom decimal import Decimal\nfrom fractions import Fraction\ndef f(x): return {value}\n"
    for name, value in {
        "a_float": "float(x * x)",
        "in_a_list": "[x * x * (1 + 1e-10)]",
        "a_decimal_in_a_list": "[Decimal(x * x).next_minus()]",
    }.items()
}
