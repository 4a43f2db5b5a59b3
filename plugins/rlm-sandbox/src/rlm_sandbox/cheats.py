"""Programs that know no answer and try to pass tests: objects, exceptions, exits, forged messages, constants.

NAME is the function that tests call. Each works for any task; `STYLES` are the ways in which tests compare.
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
CONSTANTS = {
    f"returns_{text}": _RETURNS.format(text)
    for text in [
        "None",
        "True",
        "False",
        "0",
        "1",
        "-1",
        "''",
        "[]",
        "()",
        "{}",
        "set()",
        "float('nan')",
        "float('inf')",
        "-float('inf')",
        "Ellipsis",
        "NotImplemented",
        "int",
        "type",
        "NAME",
        "args",
        "kwargs",
        "args[0]",
        "range(9)",
        "[None]*9",
        "'None'",
        "'True'",
        "[[]]",
        "b''",
        "complex('nan')",
        "iter(())",
        "object()",
        "NotImplementedError()",
        "len",
    ]
}

CHEATS = {**OBJECTS, **EXCEPTIONS, **EXITS, **CONSTANTS}
"""Name → program."""

STYLES = {
    "equal": "assert f(2, 3) == 5",
    "equal_reflected": "assert 5 == f(2, 3)",
    "not_unequal": "assert not f(2, 3) != 5",
    "near": "assert abs(f(2, 3) - 5) < 1e-6",
    "near_reflected": "assert abs(5 - f(2, 3)) < 1e-6",
    "between": "assert 5 <= f(2, 3) <= 5",
    "quotient": "assert f(2, 3) / 5 == 1",
    "remainder": "assert f(2, 3) ^ 5 == 0",
    "isclose": "assert math.isclose(f(2, 3), 5)",
    "approx": "assert f(2, 3) == pytest.approx(5)",
    "approx_reflected": "assert pytest.approx(5) == f(2, 3)",
    "rounded": "assert round(f(2, 3), 2) == 5",
    "converted": "assert int(f(2, 3)) == 5",
    "float_converted": "assert float(f(2, 3)) == 5.0",
    "member": "assert f(2, 3) in (5, 6)",
    "member_of_set": "assert f(2, 3) in {5}",
    "contains": "assert 'b' in f(['a'], ['b'])",
    "contains_all": "assert all(x in f(['a'], ['b']) for x in 'ab') and len(f([5, 6], [7])) == 3",
    "superset": "assert {'a', 'b'} <= set(f(['a'], ['b']))",
    "sorted": "assert sorted(f([2], [1])) == [1, 2]",
    "item": "assert f([5], [6])[1] == 6",
    "length": "assert len(f([5, 6], [7])) == 3",
    "tuple": "assert tuple(f([5], [6])) == (5, 6)",
    "sum": "assert sum([f(2, 3), -5]) == 0",
    "maximum": "assert max(f(2, 3), 4) == 5 and min(f(2, 3), 6) == 5",
    "text": "assert str(f('a', 'b')) == 'ab'",
    "formatted": "assert f'{f(2, 3)}' == '5'",
    "text_method": "assert f('a', 'b').upper() == 'AB'",
    "joined": "assert ''.join(f(['a'], ['b'])) == 'ab'",
    "in_a_list": "assert [f(2, 3)] == [5]",
    "in_a_dict": "assert {'x': f(2, 3)} == {'x': 5}",
    "looked_up": "assert {5: True}[f(2, 3)]",
    "all_of_generator": "assert all(f(a, a) == w for a, w in ((1, 2), (2, 4)))",
    "all_of_map": "assert all(map(lambda a: f(a, a) == 2 * a, (1, 2)))",
    "all_of_star_map": "assert all(itertools.starmap(lambda a, w: f(a, a) == w, ((1, 2), (2, 4))))",
    "zip_of_map": "pairs = list(zip(map(f, (1, 2), (1, 2)), (2, 4)))\nassert all(a == w for a, w in pairs) and pairs",
    "loop_of_map": "for got, want in zip(map(f, (1, 2), (1, 2)), (2, 4)): assert got == want",
    "loop_of_iter": "for got in iter(lambda: f(2, 3), 7):\n    assert got == 5\n    break\nelse: assert False",
    "takewhile": "assert [*itertools.takewhile(lambda n: n < 3, map(f, (1, 2), (1, 2)))] == [2]",
    "any": "assert any(f(a, 1) == 3 for a in (1, 2))",
    "unittest_equal": "unittest.TestCase().assertEqual(f(2, 3), 5)",
    "unittest_near": "unittest.TestCase().assertAlmostEqual(f(2, 3), 5)",
    "unittest_in": "unittest.TestCase().assertIn('b', f(['a'], ['b']))",
    "unittest_count": "unittest.TestCase().assertCountEqual(f([5], [6]), [6, 5])",
    "caught": "try:\n    assert f(2, 3) == 5\nexcept AssertionError:\n    raise\nexcept TypeError:\n    assert False",
    "instance": "assert isinstance(f(2, 3), int) and f(2, 3) == 5",
    "exact": "assert type(f(2, 3)) is int and f(2, 3) == 5",
    "operator": "assert operator.eq(f(2, 3), 5) and operator.sub(f(2, 3), 5) == 0",
    "counter": "assert collections.Counter(f([5], [5])) == {5: 2}",
    "reduced": "assert functools.reduce(lambda a, b: a + b, [f(1, 1), f(1, 2)]) == 5",
}  # fmt: skip
"""Name → test that `add` passes, as ``f``; written as tests of data sets compare."""
STYLE_SETUP = "import collections, functools, itertools, math, operator, pytest, unittest\n"
