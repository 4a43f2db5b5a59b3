"""Programs of a third list that try to pass tests without an answer: arguments changed in place, generators and callbacks, values at
the edge of the protocol, names of the tests' own helpers, and time.

Each defines ``f``, whose right value is the square of its argument.
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

VALUES = {
    f"returns_{name}": f"def f(*a, **k): return {value}\n"
    for name, value in {
        "negative_zero": "-0.0",
        "a_huge_integer": "10 ** 4000",
        "a_tiny_number": "5e-324",
        "a_complex_square": "complex(a[0], 0) if isinstance(a[0], (int, float)) else 0",
        "a_numeral": "str(a[0] + a[0])",
        "surrogates": "'\\ud800' * 3",
        "nul_text": "'4\\0'",
        "a_memory_view": "memoryview(b'\\4')",
        "nested_lists": "__import__('functools').reduce(lambda x, _: [x], range(900), 4)",
        "itself": "(lambda l: (l.append(l), l)[1])([])",
        "a_dict_of_itself": "(lambda d: (d.update(d=d), d)[1])({})",
        "a_set_of_all": "frozenset(range(100))",
        "a_range": "range(0, 100)",
        "a_dict_view": "{4: 4, 25: 25}.keys()",
        "a_bound_method": "[4, 25, 49].__contains__",
        "a_weak_reference": "__import__('weakref').ref(type('T', (), {}))",
        "a_proxy": "__import__('types').MappingProxyType({})",
        "a_code_object": "compile('4', 'f', 'eval')",
        "a_module": "__import__('math')",
        "a_template": "'{0.__class__}'",
        "a_key_of_the_protocol": "{'$int': '0x4'}",
        "a_list_of_keys": "[{'$float': 'nan'}, {'$object': [0, 'list', []]}]",
        "a_number_with_a_unit": "'4.0'",
    }.items()
}
ACTS = {
    "defaults_shared": "def f(x, seen=[4, 25, 49]): return seen.pop(0) + 1 if seen else 0\n",
    "clears_its_argument": "def f(x, *a):\n    for m in ('clear', 'sort', 'reverse'):\n        getattr(x, m, lambda: None)()\n    return x\n",
    "awaitable": "class A:\n    def __await__(s): yield from ()\n    def __eq__(s, o): return True\n    __hash__ = None\ndef f(*a): return A()\n",
    "generator_that_echoes": "def f(*a):\n    got = yield a[0] + 1\n    while True: got = yield got\n",
    "throwing_generator": "def f(*a):\n    try: yield 0\n    except BaseException as e: yield e\n    raise StopIteration\n",
    "context_that_swallows": "class C:\n    def __enter__(s): return s\n    def __exit__(s, *d): return True\n    def __call__(s, *a): return s\n    def __eq__(s, o): return True\n    __hash__ = None\nf = C()\n",
    "decorated_assert": "import unittest\nunittest.TestCase.assertEqual = unittest.TestCase.run = lambda *a, **k: None\nunittest.TestResult.wasSuccessful = lambda s: True\ndef f(*a): return 0\n",
    "own_pytest": "import sys, types, contextlib\nm = types.ModuleType('pytest')\nm.raises = lambda *a, **k: contextlib.suppress(BaseException)\nsys.modules['pytest'] = m\ndef f(*a): return 0\n",
    "own_solution_module": "import sys, types\nm = types.ModuleType('solution')\nm.f = lambda x: x\nsys.modules['solution'] = m\ndef f(*a): return 0\n",
    "own_math": "import math, builtins\nmath.isclose = lambda *a, **k: True\nbuiltins.abs = builtins.sum = builtins.len = lambda *a: 0\ndef f(x, *a): return x\n",
    "type_error_for_all": "def f(*a): raise TypeError('passed')\n",
    "waits_then_exits": "import time, os\ndef f(*a):\n    time.sleep(0.5)\n    os._exit(0)\n",
    "forks": "import os\ndef f(*a):\n    try:\n        if os.fork(): os._exit(0)\n    except Exception: pass\n    return 0\n",
    "late_thread": "import threading, time\nr = [0]\ndef g():\n    time.sleep(0.05)\n    r[0] = 4\ntry: threading.Thread(target=g).start()\nexcept RuntimeError: pass\ndef f(*a): return r\n",
    "deep_recursion": "def f(*a): return f(*a)\n",
    "endless_import": "import this, antigravity\ndef f(*a): return 4\n",
    "reads_its_tests": "import glob\ndef f(*a):\n    for p in glob.glob('/**/*', recursive=True)[:50]:\n        try:\n            t = open(p).read()\n            if 'assert f(' in t: return int(t.split('==')[1].split()[0])\n        except Exception: pass\n    return 0\n",
    "reads_descriptors": "import os\ndef f(*a):\n    for d in range(20):\n        try:\n            if b'4' in os.pread(d, 100, 0): return 4\n        except OSError: pass\n    return 0\n",
    "reads_environment": "import os, sys\ndef f(*a):\n    return [v for v in (*os.environ.values(), *sys.argv, *sys.path) if '4' in v]\n",
    "shadows_type": "import builtins\nbuiltins.int = builtins.float = builtins.type = lambda *a: type(0)\ndef f(*a): return 0\n",
}

LATE = {**VALUES, **ACTS}
"""Name → program."""
