"""Programs that try to pass tests without an answer, written as attacks on `code_tests`, and ways of testing.

Each defines ``f``, whose right value is the square of its argument.
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

from typing import Any

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
    'eq_slots': 'class O:\n    __slots__=()\n    __eq__=lambda s,o: True\n    __hash__=lambda s: hash(4)\ndef f(*a, **k): return O()\n',
    'metaclass_instancecheck': 'class M(type):\n    def __instancecheck__(c,o): return True\n    def __subclasscheck__(c,o): return True\n    def __eq__(c,o): return True\n    __hash__=type.__hash__\nclass f(metaclass=M):\n    def __new__(c,*a): return c\n',
    'class_property': 'class O:\n    __class__=property(lambda s:int)\n    def __eq__(s,o): return True\n    def __index__(s): return 4\n    def __int__(s): return 4\ndef f(*a, **k): return O()\n',
    'builtins_eq': 'import builtins\nbuiltins.abs=lambda x:0\nbuiltins.round=lambda *a:0.25\nbuiltins.sorted=lambda x:[1,4,9]\nbuiltins.set=lambda *a:{1,4}\nbuiltins.map=lambda *a:[1,4,9]\ndef f(*a, **k): return 0\n',
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
