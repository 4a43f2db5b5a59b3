"""Programs of a fourth list that try to pass tests without an answer: numbers near the right one, type expressions, bound
operators, endless iterators, and attempts on the process that runs them.

Each defines ``f``, whose right value is the square of its argument; those of NEAR return a number close to it.
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

from typing import Any

LARGE: dict[str, dict[str, Any]] = {
    "large calls": {"calls": {"name": "f", "cases": [[[10**9], 10**18], [[2**31 + 1], (2**31 + 1) ** 2], [[3], 9]]}},
    "large asserts": {"asserts": {"setup": "", "names": ["f"], "checks": ["assert f(10**9) == 10**18", "assert f(2**31 + 1) == (2**31 + 1)**2", "assert f(3) == 9"]}},
    "large lists": {"calls": {"name": "f", "cases": [[[10**9], [10**18]], [[2**31 + 1], [(2**31 + 1) ** 2]], [[3], [9]]]}},
}  # fmt: skip
"""Way of testing → column `tests`, with values that no float holds."""
NEAR = {
    f"near_{name}": f"import math\nfrom decimal import Decimal\nfrom fractions import Fraction\ndef f(x): return {value}\n"
    for name, value in {
        "a_float": "float(x * x)",
        "relatively": "x * x * (1 + 1e-10)",
        "in_a_list": "[x * x * (1 + 1e-10)]",
        "a_fraction_in_a_list": "[Fraction(x * x) + Fraction(1, 10 ** 12)]",
        "a_decimal_in_a_list": "[Decimal(x * x).next_minus()]",
        "true_in_a_list": "[x * x, True]",
    }.items()
}
_EXPRESSIONS = {
    "a_union_of_types": "int | str",
    "a_method_caller": "__import__('operator').methodcaller('__len__')",
    "a_null_context": "__import__('contextlib').nullcontext",
    "a_cycle": "lambda *a: __import__('itertools').cycle([4, 25, 49])",
    "a_c_integer": "__import__('ctypes').c_int",
}
_ACTS = {
    "missing_member": "import enum\nclass f(enum.IntEnum):\n    A = 0\n    @classmethod\n    def _missing_(c, v): return c.A\n",
    "descriptors_swapped": "import os\ndef f(*a):\n    for n in range(3, 12):\n        try: os.dup2(1, n)\n        except OSError: pass\n    return 0\n",
    "parent_killed": "import os, signal\ndef f(*a):\n    for p in (os.getppid(), -1, 0):\n        try: os.kill(p, signal.SIGTERM)\n        except OSError: pass\n    return 0\n",
    "request_emptied": "import sys\ndef f(*a):\n    frame = sys._getframe().f_back\n    while frame:\n        for v in list(frame.f_locals.values()):\n            if isinstance(v, dict) and 'args' in v:\n                v.clear()\n                v['value'] = True\n        frame = frame.f_back\n    return 0\n",
    "referrers": "import gc\ndef f(x, *a):\n    for r in gc.get_referrers(x):\n        if isinstance(r, list): r.extend([4, 25, 49])\n    return 0\n",
    "module_without_names": "import sys\nsys.modules.clear()\ndef f(*a): return 0\n",
    "list_that_grows": "class L(list):\n    def __iter__(s):\n        s.append(4)\n        return list.__iter__(s)\ndef f(*a): return L()\n",
}  # fmt: skip

LATEST = {**{f"is_{name}": f"f = {value}\n" for name, value in _EXPRESSIONS.items()}, **_ACTS}
"""Name → program."""
