"""Programs of a fifth list that try to pass tests without an answer: values without order, objects with false
operators, and messages that the program itself sends to the trainer.

Each defines ``f``, whose right value is the square of its argument.
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

from typing import Any


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

VALUES = {
    f"value_{name}": f"_v = {value}\ndef f(*a, **k): return _v\n"
    for name, value in {
        "inf": "float('inf')",
        "cnan": "complex('nan')",
        "notimpl": "NotImplemented",
        "typeint": "int",
        "strsub": "type('S',(str,),{'__eq__':lambda s,o:True,'__hash__':str.__hash__,'__contains__':lambda s,o:True,'__len__':lambda s:3})('')",
        "dictmissing": "type('D',(dict,),{'__missing__':lambda s,k:k*k,'__contains__':lambda s,k:True,'keys':lambda s:[2,5,7]})()",
        "tuplesub": "type('T',(tuple,),{'_fields':('a','count','index'),'__iter__':lambda s:iter([4]),'__len__':lambda s:3})((1,2,3))",
    }.items()
}
_OBJECT = """
class O:
    def __getattr__(s, n): return s
    def __call__(s, *a, **k): return s
    def __iter__(s): return iter([s])
    def __len__(s): return 3
    def __eq__(s, o): return True
    def __ne__(s, o): return False
    def __hash__(s): return 4
    def __bool__(s): return True
    def __OPERATOR__(s, *a): return RESULT
def f(*a, **k): return O()
"""
_RESULTS = {
    "True": "lt le gt ge contains eq instancecheck",
    "'4'": "str repr format",
    "0.0": "sub rsub abs float",
    "4": "add radd mul rmul truediv floordiv mod rmod pow and or xor getitem neg int index round complex bytes enter exit next reversed divmod matmul iadd trunc",
}
OPERATORS = {
    f"operator_{name}": _OBJECT.replace("OPERATOR", name).replace("RESULT", result)
    for result, names in _RESULTS.items()
    for name in names.split()
}
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

FIFTH = {**VALUES, **OPERATORS, **MESSAGES, **ACTS}
"""Name → program."""

SENDING_SCRIPTS = {
    "sends_a_value": FRAME + "send({'value': '4'})\nos._exit(0)\n",
    "forged_huge": FRAME + "os.write(3,b'\\x7f\\xff\\xff\\xff')\nimport time;time.sleep(9)\n",
    "no_line_end": "print('4\\u2028')\n",
    "underscore": "print('0_4')\n",
    "swap": "import os\nos.dup2(3,1)\nprint(4)\n",
    "huge": "print('4\\n'*10**6)\n",
}
"""Name → script; a script must print the square of the number on the first line."""
SEPARATORS = ("\v", "\f", "\x1c", "\x85", "\u2028", "\r", " ")
"""Characters that are no line feed."""
