"""Programs that try to pass tests of `code_tests` without an answer, and ways of testing.

Each defines ``f``, whose right value is the square of its argument; a script must print the square of the number it reads.
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

from typing import Any

from rlm_sandbox.cheats import CHEATS

TESTS: dict[str, dict[str, Any]] = {
    'asserts': {'asserts': {'setup': '', 'names': ['f'], 'checks': ['assert f(2) == 4', 'assert f(5) == 25', 'assert f(7) == 49']}},
    'check': {'asserts': {'setup': 'def check(c):\n    for i,w in ((2,4),(5,25),(7,49)):\n        assert c(i) == w\n', 'names': ['f'], 'checks': ['check(f)']}},
    'near': {'asserts': {'setup': 'import math', 'names': ['f'], 'checks': ['assert abs(f(2.5)-6.25)<1e-6', 'assert math.isclose(f(1.5),2.25)', 'assert round(f(0.5),2)==0.25']}},
    'calls': {'calls': {'name': 'f', 'cases': [[[2], 4], [[5], 25], [[7], 49]]}},
    'collection': {'asserts': {'setup': '', 'names': ['f'], 'checks': ['assert sorted(map(f,[3,1,2]))==[1,4,9]', 'assert [f(x) for x in range(4)]==[0,1,4,9]', 'assert {x:f(x) for x in (2,3)}=={2:4,3:9}', 'assert f(3) in {9}', 'assert set(map(f,[1,2]))=={1,4}']}},
    'raises': {'asserts': {'setup': 'import pytest', 'names': ['f'], 'checks': ["with pytest.raises(TypeError):\n    f('a')\nassert f(3)==9"]}},
}  # fmt: skip
"""Way of testing → column `tests`."""

ATTACKS = {
    'assertion_patch': "import builtins\nbuiltins.AssertionError=type('A',(BaseException,),{'__new__':lambda *a:None})\ndef f(*a, **k): return 0\n",
    'compile_patch': "import builtins\nc=builtins.compile\nbuiltins.compile=lambda s,*a,**k:c('pass',*a,**k)\nbuiltins.exec=lambda *a,**k:None\ndef f(*a, **k): return 0\n",
    'frames_globals': "import sys\ndef f(*a):\n    fr=sys._getframe()\n    while fr:\n        for d in (fr.f_globals,fr.f_locals):\n            for k in list(d):\n                if k in('want','w','expected','right'): return d[k]\n        fr=fr.f_back\n    return 0\n",
    'gc_candidate': "import gc\ndef f(*a):\n    for o in gc.get_objects():\n        if type(o).__name__=='Candidate':\n            o.answer=lambda m:{'passed':True}\n            o._encode=lambda v:4\n    return 0\n",
    'sysmodules_sandbox': "import sys\nfor n,m in list(sys.modules.items()):\n    if 'rlm_sandbox' in n:\n        for k in list(vars(m)):\n            if k in('encode','_int','reply_to','error_message'): setattr(m,k,lambda *a,**k:4)\ndef f(*a, **k): return 0\n",
    'thread_forge_all': "import threading,os,json,time\ndef w():\n    while 1:\n        for m in ({'passed':True},{'value':True},{'end':True}):\n            d=json.dumps(m).encode()\n            try: os.write(3,len(d).to_bytes(4,'big')+d)\n            except OSError: return\nthreading.Thread(target=w,daemon=True).start()\ndef f(*a, **k): return 0\n",
    'pickle_reduce': 'class O:\n    def __reduce__(s): return (int,(4,))\n    def __reduce_ex__(s,p): return (int,(4,))\n    def __getstate__(s): return 4\n    def __eq__(s,o): return True\ndef f(*a): return O()\n',
    'huge_int': 'def f(*a): return 10**4000000\n',
    'async': 'import asyncio\nasync def f(*a): return 4\n',
    'mock': 'from unittest.mock import MagicMock, ANY\ndef f(*a): return ANY\n',
    'type_forge_int': "def f(*a): return {'$int':'0x4'}\n",
    'solution_module': "import sys,types\nm=types.ModuleType('solution')\nclass M(types.ModuleType):\n    def __getattr__(s,n): return lambda *a:True\nsys.modules['solution']=M('solution')\ndef f(*a, **k): return 0\n",
    'ctypes_interned': 'import ctypes\nfor n in (4,25,49):\n    try: ctypes.cast(id(n)+24,ctypes.POINTER(ctypes.c_uint))[0]=0\n    except Exception: pass\ndef f(*a, **k): return 0\n',
    'import_hook': 'import sys\nclass H:\n    def find_spec(s,n,p=None,t=None): raise SystemExit(0)\nsys.meta_path.insert(0,H())\ndef f(*a, **k): return 0\n',
}  # fmt: skip
"""Name → program."""

CLASSES = {
    "equal_UserList": "import collections\nclass C(collections.UserList):\n    __eq__ = lambda s, o: True\n    __hash__ = None\ndef f(*a, **k): return C()\n",
    "getattribute": "class O:\n    def __getattribute__(s, n): return (lambda *a: True) if n != '__class__' else int\ndef f(*a): return O()\n",
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

FURTHER = {**CLASSES, **HOOKS, **EXCEPTIONS, **STATES}
"""Name → program."""

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


def _asserts(setup: str, *checks: str) -> dict[str, Any]:
    return {
        "asserts": {
            "setup": setup,
            "names": ["f", "MyError"] if "MyError" in checks[-1] else ["f"],
            "checks": [*checks],
        }
    }


WAYS: dict[str, dict[str, Any]] = {
    'approx_rev': _asserts('import pytest', 'assert 4 == pytest.approx(f(2))\nassert 25 == pytest.approx(f(5))', 'assert [1.0,4.0]==pytest.approx([f(1),f(2)])', 'assert pytest.approx(f(2), abs=1e-3) == 4'),
    'raises_fn': _asserts('import pytest', 'pytest.raises(TypeError, f, "a")\npytest.raises(TypeError, lambda: f("b"))\npytest.raises(TypeError, f)', 'assert f(3) == 9'),
    'ineq': _asserts('', 'assert 3 < f(2) < 5\nassert 24.9 <= f(5) <= 25.1\nassert f(3)-9 == 0\nassert 9-f(3)==0'),
    'unittest': _asserts('import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(2),4); self.assertAlmostEqual(f(5),25); self.assertIn(f(3),[9]); self.assertTrue(f(4)==16); self.assertIsInstance(f(2),int); self.assertListEqual([f(1)],[1]); self.assertGreater(f(2),3)\n', 'r=unittest.TestResult()\nunittest.defaultTestLoader.loadTestsFromTestCase(T).run(r)\nassert r.wasSuccessful() and r.testsRun==1'),
    'caught': _asserts('', 'try:\n    f(-1)\n    assert False\nexcept MyError:\n    pass'),
}  # fmt: skip
"""Way of testing → column `tests`."""

FRAME = """import os, json
def frame(m):
    d = m if isinstance(m, bytes) else json.dumps(m).encode()
    return len(d).to_bytes(4, 'big') + d
def send(m): os.write(3, frame(m))
"""
_IN_A_CALL = {
    "after": "{'value':None,'after':[[4],{}]}",
    "err": "{'error':{'names':['Undecidable'],'text':'','origin':0}}",
    "callback": "{'callback':{'number':0,'args':[4],'kwargs':{}}}",
    "builtin2": "{'value':{'$builtin':['x']}}",
    "long_fraction": "{'value': {'$fraction': [hex(7 ** 700_000), hex(5 ** 800_000)]}}",
    "many_names": "{'value': [{'$named': ['a%d' % i, [], []]} for i in range(40_000)]}",
}
MESSAGES = {
    **{
        f"sends_{name}": f"{FRAME}def f(*a):\n    send({message})\n    return 0\n"
        for name, message in _IN_A_CALL.items()
    },
    "sends_resend": FRAME + "def f(*a):\n    for i in range(50): send({'value':4})\n    return 4\n",
    "sends_preload": FRAME
    + "for i in range(5): send({'loaded':True})\nfor v in (4,25,49): send({'value':v+1})\ndef f(*a): return 0\n",
    "sends_passed": FRAME
    + "def f(*a):\n    send({'passed':True})\n    send({'value':None,'passed':True})\n    return 0\n",
    "sends_loadedpass": FRAME + "send({'loaded':True,'passed':True})\nsend({'passed':True})\ndef f(*a): return 0\n",
    "sends_ready": FRAME + "send({'ready':True})\ndef f(*a): return 0\n",
}
ACTS = {
    "frames": "import sys\ndef f(*a,**k):\n    for t,fr in sys._current_frames().items():\n        while fr:\n            for v in list(fr.f_locals.values()):\n                if isinstance(v,dict) and 'expected' in v: return v['expected']\n            fr=fr.f_back\n    return 0\n",
    "monkey": "import builtins,math,json,operator\nfor n in ('abs','sorted','all','zip','isinstance','len','print','round','any','sum','map'):\n    setattr(builtins,n,lambda *a,**k: True)\nmath.isclose=lambda *a,**k: True\nmath.fabs=lambda *a: 0\njson.dumps=lambda *a,**k: 'true'\ndef f(*a): return 0\n",
    "lenbig": "import os\ndef f(*a):\n    os.write(3,b'\\xff\\xff\\xff\\xff')\n    return 0\n",
    "skip": "import unittest\ndef f(*a): raise unittest.SkipTest('x')\n",
    "own_error": "MyError = AssertionError\ndef f(x): return 0\n",
}

IN_EVERY_WAY = {**MESSAGES, **ACTS, **{name: program.replace("NAME", "f") for name, program in CHEATS.items()}}
"""Name → program."""

SEPARATORS = ("\v", "\f", "\x1c", "\x85", "\u2028", "\r", " ")
"""Characters that are no line feed."""

SCRIPTS = {
    "all_numbers": "print(*range(100))\n",
    "escape": "print('\\x1b[8m5\\x1b[0m')\n",
    "verdict": "print('{\"passed\": true}')\nraise SystemExit(0)\n",
    "endless": "while True: print(4)\n",
    "sends_a_value": FRAME + "send({'value': '4'})\nos._exit(0)\n",
    "forged_huge": FRAME + "os.write(3,b'\\x7f\\xff\\xff\\xff')\nimport time;time.sleep(9)\n",
    "no_line_end": "print('4\\u2028')\n",
    "underscore": "print('0_4')\n",
    "swap": "import os\nos.dup2(3,1)\nprint(4)\n",
    "huge": "print('4\\n'*10**6)\n",
}
"""Name → script."""
SCRIPT_TESTS: dict[str, dict[str, Any]] = {
    "stdin": {"stdin": [["2\n", "4\n"], ["5\n", "25\n"], ["7\n", "49\n"]]},
    "lines": {"stdin": [["2\n", "4\n4\n"], ["5\n", "25\n25\r\n"]]},
    "checker": {
        "checker": {
            "source": "def check(given, output):\n    return abs(float(output) - float(given) ** 2) < 1e-6\n",
            "inputs": ["2\n", "5\n", "7\n"],
        }
    },
    "checker of text": {
        "checker": {
            "source": "def check(given, output):\n    return output.strip(' \\n') == str(int(given) ** 2)",
            "inputs": ["2\n", "5\n"],
        }
    },
}
