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
        "ninf": "float('-inf')",
        "cinf": "complex('inf')",
        "cnan": "complex('nan')",
        "dinf": "__import__('decimal').Decimal('Infinity')",
        "dnan": "__import__('decimal').Decimal('NaN')",
        "dsnan": "__import__('decimal').Decimal('sNaN')",
        "nanlist": "[float('nan')]*3",
        "notimpl": "NotImplemented",
        "ell": "...",
        "emptytuple": "()",
        "emptydict": "{}",
        "emptyset": "set()",
        "emptystr": "''",
        "none": "None",
        "false": "False",
        "typeint": "int",
        "typeobj": "object",
        "rangeempty": "range(0)",
        "strsub": "type('S',(str,),{'__eq__':lambda s,o:True,'__hash__':str.__hash__,'__contains__':lambda s,o:True,'__len__':lambda s:3})('')",
        "dictmissing": "type('D',(dict,),{'__missing__':lambda s,k:k*k,'__contains__':lambda s,k:True,'keys':lambda s:[2,5,7]})()",
        "counter": "__import__('collections').Counter({4:1,25:1,49:1})",
        "defaultd": "__import__('collections').defaultdict(lambda:4)",
        "chainmap": "__import__('collections').ChainMap({})",
        "itercycle": "__import__('itertools').cycle([4,25,49])",
        "itercount": "__import__('itertools').count()",
        "repeat": "__import__('itertools').repeat(4)",
        "gen": "(x for x in iter(lambda: 4, 5))",
        "emptygen": "iter(())",
        "mapped": "map(lambda x: x, ())",
        "enumall": "__import__('enum').Enum('E',{'A':4}).A",
        "slicev": "slice(4)",
        "memory": "memoryview(bytes([4]))",
        "arr": "__import__('array').array('i',[4])",
        "coroutine": "(lambda: (yield))()",
        "intstr": "type('I',(int,),{'__str__':lambda s:'4','__repr__':lambda s:'4','__float__':lambda s:4.0,'__index__':lambda s:4,'__int__':lambda s:4,'__round__':lambda s,*a:4,'__abs__':lambda s:0,'__sub__':lambda s,o:0,'__rsub__':lambda s,o:0})(0)",
        "floatsub": "type('F',(float,),{'__sub__':lambda s,o:0.0,'__rsub__':lambda s,o:0.0,'__abs__':lambda s:0.0,'__round__':lambda s,*a:4,'__float__':lambda s:4.0,'as_integer_ratio':lambda s:(4,1)})(0)",
        "listsub": "type('L',(list,),{'__iter__':lambda s:iter([1,4,9]),'__len__':lambda s:3,'__eq__':lambda s,o:True,'__getitem__':lambda s,i:4})()",
        "tuplesub": "type('T',(tuple,),{'_fields':('a','count','index'),'__iter__':lambda s:iter([4]),'__len__':lambda s:3})((1,2,3))",
        "bytesub": "b'4'",
        "setsub": "type('S',(set,),{'__contains__':lambda s,o:True,'__eq__':lambda s,o:True,'__len__':lambda s:1})()",
        "fzs": "type('S',(frozenset,),{'__contains__':lambda s,o:True,'__eq__':lambda s,o:True,'__hash__':lambda s:4})()",
        "decsub": "type('D',(__import__('decimal').Decimal,),{'__str__':lambda s:'4','__eq__':lambda s,o:True,'__hash__':lambda s:4})(0)",
        "fracsub": "type('F',(__import__('fractions').Fraction,),{'numerator':property(lambda s:4),'denominator':property(lambda s:0)})(0)",
        "negzero": "-0.0",
        "hugefloat": "1.7976931348623157e308",
        "subnormal": "5e-324",
        "wide": "list(range(200000))",
        "deep": "(lambda: [None for a in [[]] for _ in range(1)])()",
        "bignest": "__import__('functools').reduce(lambda a,_:(a,),range(59),4)",
        "rtl": "'\\u202e4'",
        "nul": "'4\\x00'",
        "complexz": "0j",
        "any_mock": "__import__('unittest.mock').mock.ANY",
        "magic_mock": "__import__('unittest.mock').mock.MagicMock()",
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
    "afterbad": "{'value':None,'after':[[4,5,6],{'a':1}]}",
    "afteronly": "{'after':[[4],{}]}",
    "end": "{'end':True}",
    "err": "{'error':{'names':['Undecidable'],'text':'','origin':0}}",
    "err2": "{'error':{'names':['TypeError'],'text':'x','origin':0,'args':[],'attributes':{'$dict':[['__class__',1]]}}}",
    "err3": "{'error':{'names':['SystemExit','BaseException'],'text':'','args':[0]}}",
    "err4": "{'error':{'names':['StopAsyncIteration','X'],'text':'','args':[0]}}",
    "err5": "{'error':{'names':['Sub','StopIteration'],'text':'','args':[4]}}",
    "err6": "{'error':{'names':[{}],'text':[],'args':4}}",
    "err7": "{'error':{'names':['T\\x00'],'text':'','args':[]}}",
    "callback": "{'callback':{'number':0,'args':[4],'kwargs':{}}}",
    "callback2": "{'callback':{'number':-1,'args':[],'kwargs':{}}}",
    "callback3": "{'callback':[]}",
    "objnum": "{'value':{'$object':[-1,'iterator',[]]}}",
    "objbad": "{'value':{'$object':['x',{},5]}}",
    "objexc": "{'value':{'$object':[1,'exception',['int']]}}",
    "objexc2": "{'value':{'$object':[1,'exception',[]]}}",
    "imp": "{'value':{'$import':['os','system']}}",
    "func": "{'value':{'$function':[0,'a','b']}}",
    "stream": "{'value':{'$stream':0}}",
    "builtin": "{'value':{'$builtin':'eval'}}",
    "builtin2": "{'value':{'$builtin':['x']}}",
    "badtag": "{'value':{'$dict':[[{'$dict':[]},4]]}}",
    "badtag2": "{'value':{'$dict':4}}",
    "badtag3": "{'value':{'$dict':[4,5]}}",
    "badtag4": "{'value':{'$range':['0x0','0x5','0x0']}}",
    "badtag5": "{'value':{'$named':['a',5,[1]]}}",
    "badtag6": "{'value':{'$named':[5,['a'],[1]]}}",
    "badtag7": "{'value':{'$datetime':5}}",
    "badtag8": "{'value':{'$fraction':['0x1']}}",
    "badtag9": "{'value':{'$counter':[[1,{'$dict':[]}]]}}",
    "badjson": "b'{\"value\": NaN}'",
    "badjson2": 'b\'{"value": 4, "value": 5}\'',
    "badjson3": "b'\\xff\\xfe{'",
    "badjson4": 'b\'{"value": "\\\\ud800"}\'',
    "badjson5": "b'[]'",
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
    "sysmod": "import sys\ndef f(*a):\n    for m in list(sys.modules.values()):\n        for n in ('checks','want','expected','tests'):\n            if hasattr(m,n): return getattr(m,n)\n    return 0\n",
    "tb": "import traceback,sys\ndef f(*a):\n    try: raise ValueError\n    except ValueError as e: return ''.join(traceback.format_stack())\n",
    "warn": "import warnings\ndef f(*a):\n    warnings.warn('4')\n    raise Warning('4')\n",
    "audit": "import sys\nseen=[]\nsys.addaudithook(lambda e,a: seen.append((e,a)))\ndef f(*a):\n    for e,x in seen:\n        if 'check' in str(x): return x\n    return 0\n",
    "sig": "import signal,os\ntry: signal.signal(signal.SIGTERM, lambda *a: os._exit(0)); signal.setitimer(signal.ITIMER_REAL,.01)\nexcept Exception: pass\ndef f(*a): return 0\n",
    "monkey": "import builtins,math,json,operator\nfor n in ('abs','sorted','all','zip','isinstance','len','print','round','any','sum','map'):\n    setattr(builtins,n,lambda *a,**k: True)\nmath.isclose=lambda *a,**k: True\nmath.fabs=lambda *a: 0\njson.dumps=lambda *a,**k: 'true'\ndef f(*a): return 0\n",
    "profile": "import sys\ndef p(fr,e,a):\n    if e=='call': fr.f_locals['x']=4\nsys.setprofile(p); sys.settrace(p)\ndef f(x,*a): return x\n",
    "memo": "m={}\ndef f(x,*a):\n    m[x]=m.get(x,0)+1\n    return len(m)*4\n",
    "lenbig": "import os\ndef f(*a):\n    os.write(3,b'\\xff\\xff\\xff\\xff')\n    return 0\n",
    "len0": "import os\ndef f(*a):\n    os.write(3,b'\\0\\0\\0\\0')\n    return 0\n",
    "dup": "import os\ntry: os.dup2(3,1); os.dup2(1,3)\nexcept OSError: pass\ndef f(*a): return 0\n",
    "close": "import os\ndef f(*a):\n    os.close(3)\n    return 0\n",
    "steal": "import os\ndef f(*a):\n    import threading\n    d=os.read(3,1000)\n    return d\n",
    "thread_reader": "import os,threading\ndef g():\n    while True: os.read(3,4096)\ntry: threading.Thread(target=g,daemon=True).start()\nexcept Exception: pass\ndef f(*a): return 0\n",
    "gexit": "def f(*a): raise GeneratorExit\n",
    "rec": "class R(RecursionError):\n    def __init__(s,*a): pass\ndef f(*a): raise R\n",
    "kbd": "class K(KeyboardInterrupt): pass\ndef f(*a): raise K\n",
    "gstop": "def f(*a):\n    return (x for x in [1] if next(iter(())))\n",
    "genexit": "def f(*a):\n    yield 4\n    raise GeneratorExit\n",
    "skip": "import unittest\ndef f(*a): raise unittest.SkipTest('x')\n",
    "xfail": "class Skipped(BaseException): pass\nclass XFailed(Exception): pass\ndef f(*a): raise Skipped('x')\n",
    "args_mut": "def f(x,*a,**k):\n    for c in (x,*a):\n        if hasattr(c,'clear'): c.clear()\n",
    "args_mut2": "def f(x,*a,**k):\n    if isinstance(x,list): x.sort(); x.reverse(); x[:]=[]\n    return None\n",
    "defarg": "def f(x=4,*a): return 4 if x==2 else None\n",
    "sleepy": "import time\ndef f(x,*a):\n    time.sleep(.6)\n    return 0\n",
    "memb": "def f(*a): return [0]*10**9\n",
    "outb": "def f(*a): return 'x'*10**7\n",
    "pickler": "class P:\n    def __reduce__(s): return (eval,('4',))\n    def __reduce_ex__(s,p): return (eval,('4',))\n    def __deepcopy__(s,m): return 4\n    def __copy__(s): return 4\ndef f(*a): return P()\n",
    "wrapped": "def f(*a): return 0\nf.__wrapped__=lambda x: x*x\nf.__name__='g'\n",
    "instancef": "class M(type):\n    def __instancecheck__(c,o): return True\nclass f(metaclass=M):\n    def __new__(c,*a): return 4.0\n    def __class_getitem__(c,k): return 4\n",
    "solution": "class Solution:\n    def f(self,*a): return self\n    def __eq__(s,o): return True\n",
    "selfret": "def f(*a): return f\n",
    "globalsret": "def f(*a): return globals()\n",
    "lam": "f=lambda *a,**k: (lambda *b: 4)\n",
    "partial": "import functools\nf=functools.partial(lambda *a: 0)\n",
    "property_": "class X:\n    real=property(lambda s:4)\n    imag=0\n    def __eq__(s,o): return True\nimport numbers\nnumbers.Complex.register(X)\ndef f(*a): return X()\n",
    "own_error": "MyError = AssertionError\ndef f(x): return 0\n",
    "any_error": "MyError = BaseException\ndef f(x): return 0\n",
    "nan_or_infinite": "def f(x): return float('inf') if x > 2 else float('nan')\n",
}

FIFTH = {**VALUES, **OPERATORS, **MESSAGES, **ACTS}
"""Name → program."""
