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
    'mixed': _asserts('import math,copy,json,statistics', 'assert math.isclose(f(2),4) and abs(f(5)-25)<1e-6', 'xs=[f(2),f(5)]\nassert sorted(xs)==[4,25] and sum(xs)==29 and max(xs)==25', 'assert json.loads(json.dumps(f(7)))==49', 'assert copy.deepcopy(f(7)) in (49,)', 'assert str(f(2))=="4" and "%d"%f(2)=="4" and f"{f(2)}"=="4"', 'assert {f(2):1}.get(4)==1', 'assert divmod(f(5),10)==(2,5)'),
    'types': _asserts('', 'r=f(2)\nassert isinstance(r,int) and r==4\nassert type(f(5)) in (int,float) and f(5)==25', 'assert all(f(i)==w for i,w in ((2,4),(5,25)))', 'assert not any(f(i)!=w for i,w in ((2,4),(5,25)))', 'assert list(map(f,[1,2]))==[1,4]', 'assert [a for a,b in zip(map(f,[1,2]),[1,4]) if a==b]==[1,4]'),
    'ineq': _asserts('', 'assert 3 < f(2) < 5\nassert 24.9 <= f(5) <= 25.1\nassert f(3)-9 == 0\nassert 9-f(3)==0'),
    'unittest': _asserts('import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(2),4); self.assertAlmostEqual(f(5),25); self.assertIn(f(3),[9]); self.assertTrue(f(4)==16); self.assertIsInstance(f(2),int); self.assertListEqual([f(1)],[1]); self.assertGreater(f(2),3)\n', 'r=unittest.TestResult()\nunittest.defaultTestLoader.loadTestsFromTestCase(T).run(r)\nassert r.wasSuccessful() and r.testsRun==1'),
    'check': _asserts('METADATA={}\ndef check(candidate):\n    for x,w in ((2,4),(5,25),(7,49)):\n        assert candidate(x)==w, "x"\n    assert abs(candidate(1.5)-2.25)<1e-9\n', 'check(f)'),
    'floats': {'calls': {'name': 'f', 'cases': [[[1.5], 2.25], [[2.5], 6.25]]}},
    'caught': _asserts('', 'try:\n    f(-1)\n    assert False\nexcept MyError:\n    pass'),
}  # fmt: skip
"""Way of testing → column `tests`."""

VALUES = {
    f"value_{name}": f"_v = {value}\ndef f(*a, **k): return _v\n"
    for name, value in {
        "inf": "float('inf')",
        "cnan": "complex('nan')",
        "dsnan": "__import__('decimal').Decimal('sNaN')",
        "nanlist": "[float('nan')]*3",
        "notimpl": "NotImplemented",
        "typeint": "int",
        "strsub": "type('S',(str,),{'__eq__':lambda s,o:True,'__hash__':str.__hash__,'__contains__':lambda s,o:True,'__len__':lambda s:3})('')",
        "dictmissing": "type('D',(dict,),{'__missing__':lambda s,k:k*k,'__contains__':lambda s,k:True,'keys':lambda s:[2,5,7]})()",
        "itercycle": "__import__('itertools').cycle([4,25,49])",
        "coroutine": "(lambda: (yield))()",
        "tuplesub": "type('T',(tuple,),{'_fields':('a','count','index'),'__iter__':lambda s:iter([4]),'__len__':lambda s:3})((1,2,3))",
        "subnormal": "5e-324",
        "deep": "(lambda: [None for a in [[]] for _ in range(1)])()",
        "nul": "'4\\x00'",
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
    "end": "{'end':True}",
    "err": "{'error':{'names':['Undecidable'],'text':'','origin':0}}",
    "callback": "{'callback':{'number':0,'args':[4],'kwargs':{}}}",
    "objnum": "{'value':{'$object':[-1,'iterator',[]]}}",
    "imp": "{'value':{'$import':['os','system']}}",
    "stream": "{'value':{'$stream':0}}",
    "builtin2": "{'value':{'$builtin':['x']}}",
    "badtag6": "{'value':{'$named':[5,['a'],[1]]}}",
    "badjson3": "b'\\xff\\xfe{'",
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
    "procmem": "def f(*a):\n    try: return open('/proc/self/mem','rb').read(1)\n    except Exception: return 0\n",
    "gcobj": "import gc\ndef f(x,*a):\n    c=[o for o in gc.get_objects() if isinstance(o,(list,tuple)) and x in o[:1]]\n    return c[0][1] if c and len(c[0])>1 else 0\n",
    "audit": "import sys\nseen=[]\nsys.addaudithook(lambda e,a: seen.append((e,a)))\ndef f(*a):\n    for e,x in seen:\n        if 'check' in str(x): return x\n    return 0\n",
    "monkey": "import builtins,math,json,operator\nfor n in ('abs','sorted','all','zip','isinstance','len','print','round','any','sum','map'):\n    setattr(builtins,n,lambda *a,**k: True)\nmath.isclose=lambda *a,**k: True\nmath.fabs=lambda *a: 0\njson.dumps=lambda *a,**k: 'true'\ndef f(*a): return 0\n",
    "profile": "import sys\ndef p(fr,e,a):\n    if e=='call': fr.f_locals['x']=4\nsys.setprofile(p); sys.settrace(p)\ndef f(x,*a): return x\n",
    "lenbig": "import os\ndef f(*a):\n    os.write(3,b'\\xff\\xff\\xff\\xff')\n    return 0\n",
    "dup": "import os\ntry: os.dup2(3,1); os.dup2(1,3)\nexcept OSError: pass\ndef f(*a): return 0\n",
    "close": "import os\ndef f(*a):\n    os.close(3)\n    return 0\n",
    "gexit": "def f(*a): raise GeneratorExit\n",
    "skip": "import unittest\ndef f(*a): raise unittest.SkipTest('x')\n",
    "args_mut": "def f(x,*a,**k):\n    for c in (x,*a):\n        if hasattr(c,'clear'): c.clear()\n",
    "memb": "def f(*a): return [0]*10**9\n",
    "pickler": "class P:\n    def __reduce__(s): return (eval,('4',))\n    def __reduce_ex__(s,p): return (eval,('4',))\n    def __deepcopy__(s,m): return 4\n    def __copy__(s): return 4\ndef f(*a): return P()\n",
    "instancef": "class M(type):\n    def __instancecheck__(c,o): return True\nclass f(metaclass=M):\n    def __new__(c,*a): return 4.0\n    def __class_getitem__(c,k): return 4\n",
    "globalsret": "def f(*a): return globals()\n",
    "own_error": "MyError = AssertionError\ndef f(x): return 0\n",
}

FIFTH = {**VALUES, **OPERATORS, **MESSAGES, **ACTS}
"""Name → program."""
