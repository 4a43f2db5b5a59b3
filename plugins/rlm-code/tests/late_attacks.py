"""Programs of a third list that try to pass tests without an answer: arguments changed in place, generators and callbacks, values at
the edge of the protocol, names of the tests' own helpers, and time.

Each defines ``f``, whose right value is the square of its argument.
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

VALUES = {
    f"returns_{name}": f"def f(*a, **k): return {value}\n"
    for name, value in {
        "a_huge_integer": "10 ** 4000",
        "a_complex_square": "complex(a[0], 0) if isinstance(a[0], (int, float)) else 0",
        "nul_text": "'4\\0'",
        "nested_lists": "__import__('functools').reduce(lambda x, _: [x], range(900), 4)",
        "itself": "(lambda l: (l.append(l), l)[1])([])",
        "a_dict_view": "{4: 4, 25: 25}.keys()",
        "a_key_of_the_protocol": "{'$int': '0x4'}",
        "a_list_of_keys": "[{'$float': 'nan'}, {'$object': [0, 'list', []]}]",
    }.items()
}
ACTS = {
    "defaults_shared": "def f(x, seen=[4, 25, 49]): return seen.pop(0) + 1 if seen else 0\n",
    "clears_its_argument": "def f(x, *a):\n    for m in ('clear', 'sort', 'reverse'):\n        getattr(x, m, lambda: None)()\n    return x\n",
    "awaitable": "class A:\n    def __await__(s): yield from ()\n    def __eq__(s, o): return True\n    __hash__ = None\ndef f(*a): return A()\n",
    "generator_that_echoes": "def f(*a):\n    got = yield a[0] + 1\n    while True: got = yield got\n",
    "decorated_assert": "import unittest\nunittest.TestCase.assertEqual = unittest.TestCase.run = lambda *a, **k: None\nunittest.TestResult.wasSuccessful = lambda s: True\ndef f(*a): return 0\n",
    "own_pytest": "import sys, types, contextlib\nm = types.ModuleType('pytest')\nm.raises = lambda *a, **k: contextlib.suppress(BaseException)\nsys.modules['pytest'] = m\ndef f(*a): return 0\n",
    "waits_then_exits": "import time, os\ndef f(*a):\n    time.sleep(0.5)\n    os._exit(0)\n",
    "forks": "import os\ndef f(*a):\n    try:\n        if os.fork(): os._exit(0)\n    except Exception: pass\n    return 0\n",
    "reads_its_tests": "import glob\ndef f(*a):\n    for p in glob.glob('/**/*', recursive=True)[:50]:\n        try:\n            t = open(p).read()\n            if 'assert f(' in t: return int(t.split('==')[1].split()[0])\n        except Exception: pass\n    return 0\n",
    "shadows_type": "import builtins\nbuiltins.int = builtins.float = builtins.type = lambda *a: type(0)\ndef f(*a): return 0\n",
}

LATE = {**VALUES, **ACTS}
"""Name → program."""
