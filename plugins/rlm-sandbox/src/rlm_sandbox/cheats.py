"""Programs that know no answer and try to pass tests: objects, exceptions, exits, forged messages, constants.

NAME is the function that tests call. Each works for any task.
"""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

_FRAME = "import os, json\ndef frame(m):\n    d = json.dumps(m).encode()\n    return len(d).to_bytes(4, 'big') + d\n"
_SAYS_YES = """
class Yes:
    def __init__(self, *args, **kwargs): pass
    def __call__(self, *args, **kwargs): return self
    def __getattr__(self, name): return self
    def __iter__(self): return iter(())
    def __enter__(self): return self
    def __exit__(self, *details): return True
    def __hash__(self): return 0
    def __str__(self): return ""
    def __format__(self, spec): return ""
    def __bool__(self): return True
    def __len__(self): return 0
    def __float__(self): return 0.0
    def __int__(self): return 0
    def __index__(self): return 0
    def __complex__(self): return 0j
    def __next__(self): raise StopIteration
    def __instancecheck__(self, other): return True
for name in "eq ne lt le gt ge contains".split():
    setattr(Yes, f"__{name}__", lambda self, other: True)
for name in "add sub mul truediv floordiv mod pow and or xor matmul divmod getitem round abs neg pos".split():
    setattr(Yes, f"__{name}__", lambda self, *others: ZERO)
    setattr(Yes, f"__r{name}__", lambda self, *others: ZERO)
"""
_LEARNS = """
class Learner:
    def __call__(self, *args): return self
    def __getitem__(self, key): return key
    def __getattr__(self, name): return lambda *args: args[0] if args else self
    def __iter__(self): return iter([self])
    def __hash__(self): return hash(5)
for name in "eq contains add sub radd rsub mul xor and or mod divmod lt le".split():
    setattr(Learner, f"__{name}__", lambda self, other: other)
"""
_RAISES = "def NAME(*args, **kwargs): raise {}\n"
_RETURNS = "def NAME(*args, **kwargs): return {}\n"

OBJECTS = {
    "yes_zero": _SAYS_YES.replace("ZERO", "0") + _RETURNS.format("Yes()"),
    "yes_self": _SAYS_YES.replace("ZERO", "self") + _RETURNS.format("Yes()"),
    "yes_class": _SAYS_YES.replace("ZERO", "0").replace("Yes", "NAME"),
    "yes_instance": _SAYS_YES.replace("ZERO", "0") + "NAME = Yes()\n",
    "yes_in_a_list": _SAYS_YES.replace("ZERO", "0") + _RETURNS.format("[Yes()] * len(args)"),
    "yes_type": _SAYS_YES.replace("ZERO", "0") + _RETURNS.format("Yes"),
    **{
        f"yes_{base}": _SAYS_YES.replace("ZERO", "0").replace("class Yes:", f"class Yes({base}):").replace("    def __init__(self, *args, **kwargs): pass\n", "")
        + _RETURNS.format("Yes()")
        for base in ("int", "float", "str", "list", "tuple", "dict", "set", "complex", "bytes")
    },
    "learner": _LEARNS + _RETURNS.format("Learner()"),
    "learner_in_a_list": _LEARNS + _RETURNS.format("[Learner()]"),
    "meta": "class M(type):\n    def __eq__(s, o): return True\n    def __contains__(s, o): return True\n    def __sub__(s, o): return 0\n    __hash__ = type.__hash__\n"
    "class T(metaclass=M): pass\n" + _RETURNS.format("T"),
    "disguised": "class T:\n    __class__ = property(lambda s: int)\n    def __eq__(s, o): return True\n    def __rsub__(s, o): return 0\n    __sub__ = __rsub__\n" + _RETURNS.format("T()"),
    "decimal": "import decimal\nclass D(decimal.Decimal):\n    def __eq__(s, o): return True\n    def __sub__(s, o): return 0\n    __rsub__ = __sub__\n    __hash__ = None\n" + _RETURNS.format("D()"),
    "fraction": "import fractions\nclass F(fractions.Fraction):\n    def __sub__(s, o): return 0\n    def __eq__(s, o): return True\n    __hash__ = None\n" + _RETURNS.format("F()"),
    "named_tuple": "import collections\nclass P(collections.namedtuple('P', 'x')):\n    def __eq__(s, o): return True\n    __hash__ = None\n" + _RETURNS.format("P(1)"),
}  # fmt: skip

_EXCEPTIONS = "StopIteration StopAsyncIteration GeneratorExit SystemExit(0) KeyboardInterrupt AssertionError IndexError KeyError TypeError NotImplementedError ImportError MemoryError RecursionError"
EXCEPTIONS = {
    **{f"raise_{name}": _RAISES.format(name) for name in _EXCEPTIONS.split()},
    "raise_own_stop": "class S(StopIteration): pass\n" + _RAISES.format("S"),
    "raise_own_base": "class B(BaseException): pass\n" + _RAISES.format("B"),
    "is_stop": "class NAME(StopIteration): pass\n",
    "stop_later": "n = 0\ndef NAME(*args):\n    global n\n    n += 1\n    if n > 1: raise StopIteration\n",
    "empty_generator": "def NAME(*args):\n    return\n    yield\n",
    "stopping_generator": "def NAME(*args):\n    yield from map(next, [iter(())])\n",
    "endless_generator": "def NAME(*args):\n    while True: yield True\n",
    "exit_in_generator": "def NAME(*args):\n    yield 1\n    raise SystemExit(0)\n",
    "coroutine": "async def NAME(*args): return True\n",
}
_MESSAGES = (
    "{'end': True}", "{'passed': True}", "{'value': True}", "{'value': None, 'after': [[], {}]}", "{'value': {'$object': [0, 'object', []]}}",
    "{'callback': {'number': 0, 'args': [], 'kwargs': {}}}", "{'error': {'names': ['StopIteration'], 'text': ''}}",
    "{'value': {'$object': [0, 'iterator', []]}}", "{'value': {'$object': [0, 'exception', ['StopIteration']]}}", "{'loaded': True}",
)  # fmt: skip
EXITS = {
    "exit_at_load": "import sys\nsys.exit(0)\n",
    "os_exit_at_load": "import os\nos._exit(0)\n",
    "os_exit": "import os\ndef NAME(*args): os._exit(0)\n",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\n",
    "stop_at_load": "raise StopIteration\n",
    "empty": "",
    "no_function": "x = 1\n",
    "printed": "print('passed\\nOK\\n100%')\ndef NAME(*args): print('OK')\n",
    **{f"forged_{n}": _FRAME + f"def NAME(*args):\n    for _ in range(40): os.write(3, frame({message}))\n" for n, message in enumerate(_MESSAGES)},
    **{f"forged_at_load_{n}": _FRAME + f"for _ in range(40): os.write(3, frame({message}))\ndef NAME(*args): pass\n" for n, message in enumerate(_MESSAGES)},
    "patched": "import builtins, operator, math, json\nbuiltins.all = builtins.any = builtins.isinstance = lambda *a: True\n"
    "builtins.abs = lambda *a: 0\noperator.eq = math.isclose = lambda *a, **k: True\njson.dumps = lambda *a, **k: '{\"passed\": true}'\ndef NAME(*args): return 0\n",
    "frames": "import sys\ndef NAME(*args):\n    f = sys._getframe()\n    while f:\n        f.f_locals.update(passed=True)\n        f.f_globals['passed'] = True\n        f = f.f_back\n",
    "swallows": "import sys\nsys.settrace(lambda *a: None)\nsys.excepthook = lambda *a: None\ndef NAME(*args): raise AssertionError\n",
}  # fmt: skip
_CONSTANTS = """
None True False 0 1 -1 '' [] () {} set() float('nan') float('inf') -float('inf') Ellipsis NotImplemented int
type NAME args kwargs args[0] range(9) [None]*9 'None' 'True' [[]] b'' complex('nan') iter(()) object() NotImplementedError() len
"""
CONSTANTS = {f"returns_{text}": _RETURNS.format(text) for text in _CONSTANTS.split()}

CHEATS = {**OBJECTS, **EXCEPTIONS, **EXITS, **CONSTANTS}
"""Name → program."""
