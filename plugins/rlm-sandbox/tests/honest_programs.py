"""Correct programs with their results, scripts, and programs with the tests of data sets: no lock may make one fail."""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

from typing import NamedTuple

from rlm_sandbox.interface import Call, Check, Input, Stdin

GIVEN, EXPECTED = "4\n-2 8 8 0\n", "14\n8 8 0 -2\n"
_PRINT = "print(sum(a)); print(*sorted(a, reverse=True))"
_READ = "n, a = input(), [*map(int, input().split())]\n"
_TOKENS = "a = [*map(int, d.split()[1:])]"

_READERS = {
    "path_of_input": "d = open('/dev/stdin').read()",
    "path_of_descriptor": "d = open('/dev/fd/0').read()",
    "path_object": "import pathlib\nd = pathlib.Path('/dev/stdin').read_text()",
    "path_in_os": "import os\nd = os.read(os.open('/dev/stdin', os.O_RDONLY), 1 << 16)",
    "copied_descriptor": "import os\nd = os.fdopen(os.dup(0)).read()",
    "absent_file_tried": "import sys\ntry: sys.stdin = open('input.txt')\nexcept FileNotFoundError: pass\nd = sys.stdin.read()",
}
_WRITERS = {
    "path_of_output": "with open('/dev/stdout', 'w') as out: print(sum(a), file=out); print(*sorted(a)[::-1], file=out)",
    "null_device": f"import os\nprint('x', file=open(os.devnull, 'w'))\n{_PRINT}",
    "detached_output": f"import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\n{_PRINT}",
    "exit_after_flush": f"import os, sys\n{_PRINT}\nsys.stdout.flush()\nos._exit(0)",
    "cores": f"import multiprocessing, mmap, tracemalloc\nmultiprocessing.cpu_count()\n{_PRINT}",
}
_BODIES = {
    "event_loop": "async def main():\n    await asyncio.sleep(0.001)\n    {}\nasyncio.run(main())",
    "event_loop_threads": "async def main():\n    global a\n    a = await asyncio.to_thread(sorted, a)\n    {}\nasyncio.run(main())",
    "event_loop_queue": "async def fill(q):\n    for v in a: await q.put(v)\nasync def main():\n    q = asyncio.Queue(1)\n"
    "    t = asyncio.create_task(fill(q))\n    assert [await q.get() for _ in a] == a\n    {}\nasyncio.run(main())",
}

STREAMS: dict[str, tuple[str, str, str]] = {
    **{name: (f"{source}\n{_TOKENS}\n{_PRINT}", GIVEN, EXPECTED) for name, source in _READERS.items()},
    **{name: (_READ + source, GIVEN, EXPECTED) for name, source in _WRITERS.items()},
    **{name: (f"import asyncio\n{_READ}{body.format(_PRINT)}", GIVEN, EXPECTED) for name, body in _BODIES.items()},
}
"""Name → (source, standard input, standard output)."""

Expected = object
Honest = tuple[str, list[tuple[Input, Expected]]]

_STACK = """
class Stack:
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item); return self
    def pop(self):
        if not self.items: raise IndexError("empty")
        return self.items.pop()
    def __len__(self): return len(self.items)
    def __contains__(self, item): return item in self.items
    @property
    def top(self): return self.items[-1]
    @classmethod
    def of(cls, items):
        made = cls()
        made.items += items
        return made
"""

CALLED: dict[str, Honest] = {
    "add": ("def add(a, b): return a + b", [(Call("add", (2, 3)), 5), (Call("add", ("a",), {"b": "b"}), "ab")]),
    "many_types": (
        "def f(): return [None, True, 1.5, 2**70, 'é\\ud800'[:1], (1, (2,)), {1: {2}}, b'x', 1j, frozenset({3})]",
        [(Call("f"), [None, True, 1.5, 2**70, "é", (1, (2,)), {1: {2}}, b"x", 1j, frozenset({3})])],
    ),
    "named_tuple": ("from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\ndef f(): return P(1)", [(Call("f"), (1,))]),
    "leetcode": ("from typing import List\nclass Solution:\n    def twoSum(self, n: List[int], t: int) -> List[int]:\n"
        "        seen = {}\n        for i, x in enumerate(n):\n            if t - x in seen: return [seen[t - x], i]\n            seen[x] = i",
        [(Call("Solution.twoSum", ([2, 7, 11], 9)), [0, 1]), (Call("twoSum", ([3, 3], 6)), [0, 1])]),
    "dataclass": ("from dataclasses import dataclass\n@dataclass(order=True)\nclass P:\n    x: int\ndef f(): return max(P(1), P(3)).x", [(Call("f"), 3)]),
    "recursion": ("import sys\nsys.setrecursionlimit(20000)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)", [(Call("f", (10000,)), 10000)]),
    "decimal": ("from decimal import *\nfrom fractions import Fraction\ndef f(): return str(Decimal('0.1') + 1), float(Fraction(1, 3))", [(Call("f"), ("1.1", 1 / 3))]),
    "prints_a_lot": ("def f():\n    for i in range(50000): print('debug', i)\n    return 1", [(Call("f"), 1)]),
    "raises_and_goes_on": ("def f(x): return 1 // x", [(Call("f", (0,)), "ZeroDivisionError"), (Call("f", (1,)), 1)]),
    "big_memory": ("def f(): return len(bytearray(200 << 20))", [(Call("f"), 200 << 20)]),
    "threads_pool": ("from concurrent.futures import ThreadPoolExecutor\ndef f():\n    with ThreadPoolExecutor(4) as p: return sum(p.map(abs, range(-50, 50)))", [(Call("f"), 2500)]),
    "stack": (_STACK, [(Check(
        "s = Stack(); s.push(1).push(2); assert len(s) == 2 and s.top == 2 and 1 in s and s.pop() == 2\n"
        "s.pop()\nwith pytest.raises(IndexError, match='empty'): s.pop()\nassert Stack.of([1, 2]).items == [1, 2]",
        setup="import pytest\nfrom solution import Stack", names=("Stack",), classes=("Stack",)), True)]),
    "takes_objects": ("class P:\n    def __init__(s, a): s.a = a\ndef total(ps): return sum(p.a for p in ps)",
        [(Check("assert total([P(1), P(2)]) == 3", names=("P", "total")), True)]),
    "parametrised": ("def double(x): return 2 * x", [(Check("test_double()",
        setup="import pytest\n@pytest.mark.parametrize('x, y', [(1, 2), (3, 6)])\ndef test_double(x, y): assert double(x) == pytest.approx(y)",
        names=("double",)), True)]),
    "coroutine": ("import asyncio\nasync def g(x): return x * x\ndef f(x):\n    try: g(x).send(None)\n    except StopIteration as e: return e.value", [(Call("f", (3,)), 9)]),
    "rare_modules": ("import doctest, colorsys, ipaddress, html.parser, urllib.parse, zoneinfo, sched, tomllib, configparser, unittest.mock\nimport xml.etree.ElementTree as E\ndef f(s): return E.fromstring(s).text", [(Call("f", ("<a>x</a>",)), "x")]),
    "static_method": ("class Solution:\n    @staticmethod\n    def f(x): return x\n    @classmethod\n    def g(cls, x): return cls.f(x)", [(Call("f", (3,)), 3), (Call("g", (4,)), 4)]),
    "a_wrong_one_fails": ("def f(x): return x", [(Check("assert f(1) == 1", names=("f",)), True), (Check("assert f(1) == 2", names=("f",)), "AssertionError")]),
}  # fmt: skip
"""Name → program, and for each input the value or the name of the error."""

SCRIPTS: dict[str, tuple[str, str, str]] = {
    "sum": ("print(sum(map(int, input().split())))", "1 2 3\n", "6\n"),
    "fast_input": ("import os, io\ninput = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline\nprint(int(input()) + int(input()))", "1\n2\n", "3\n"),
    "open_zero": ("print(len(open(0).read()))", "12345", "5\n"),
    "own_stdout": ("import sys, io, atexit\nsys.stdout = io.StringIO()\natexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))\nprint('x')", "", "x\n"),
    "exit": ("print(1)\nexit()\nprint(2)", "", "1\n"),
    "thread": ("import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 27)\n"
        "def main():\n    def f(n): return 0 if n == 0 else 1 + f(n - 1)\n    print(f(50000))\nthreading.Thread(target=main).start()", "", "50000\n"),
    "unicode": ("print(input().upper(), 'λ')", "é", "É λ\n"),
    "big_input": ("import sys\nprint(sum(map(int, sys.stdin.read().split())))", "7 " * 300_000, "2100000\n"),
    "redirected": ("import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b): print(input())\nprint(b.getvalue())", "x", "x\n\n"),
    "end_of_input": ("t = 0\nwhile True:\n    try: t += int(input())\n    except EOFError: break\nprint(t)", "1\n2", "3\n"),
    "time_and_random": ("import time, random\nrandom.seed(1)\nt = time.time()\ntime.sleep(0.01)\nprint(time.time() > t, random.random() < 1)", "", "True True\n"),
}  # fmt: skip

HONEST: dict[str, Honest] = {
    **CALLED,
    **{name: (source, [(Stdin(text), out)]) for name, (source, text, out) in (SCRIPTS | STREAMS).items()},
}


class Tested(NamedTuple):
    """A program, its names that tests use, those that are classes, and the tests."""

    source: str
    names: str
    tests: tuple[str, ...]
    classes: str = ""
    setup: str = "import pytest"


_VECTOR = """
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, other): return Vector(self.x + other.x, self.y + other.y)
    def __mul__(self, k): return Vector(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __neg__(self): return Vector(-self.x, -self.y)
    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5
    def __getitem__(self, i): return (self.x, self.y)[i]
    def __iter__(self): return iter((self.x, self.y))
    def __repr__(self): return f"Vector({self.x}, {self.y})"
    def __bool__(self): return bool(self.x or self.y)
    def __matmul__(self, other): return self.x * other.x + self.y * other.y
"""

HONEST_TESTS = {
    "operators": Tested(_VECTOR, "Vector", (
        "v = Vector(1, 2) + Vector(3, 4)\nassert (v.x, v.y) == (4, 6) and list(v) == [4, 6] and repr(v) == 'Vector(4, 6)'",
        "v = Vector(3, 4)\nassert abs(v) == 5 and v[0] == 3 and (v * 2).y == 8 and (2 * v).x == 6 and (-v).x == -3",
        "v = Vector(1, 2)\nv.x = 7\nassert v.x == 7 and isinstance(v, Vector) and v and not Vector(0, 0) and v @ Vector(1, 1) == 9",
    ), "Vector"),
    "generators": Tested(
        "def count(n):\n    for i in range(n): yield i\ndef forever():\n    n = 0\n    while True:\n        yield n\n        n += 1\ndef average():\n    total = n = 0\n    mean = None\n    while True:\n        x = yield mean\n        total += x; n += 1\n        mean = total / n\n"
        "def pairs(xs): return zip(xs, xs[1:])\ndef firsts(it, n):\n    return [x for x, _ in zip(it, range(n))]\nclass Countdown:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n    def __next__(self):\n        if not self.n: raise StopIteration\n        self.n -= 1\n        return self.n\n",
        "count forever average pairs firsts Countdown", (
        "assert list(count(3)) == [0, 1, 2] and sum(count(4)) == 6 and [*map(str, count(2))] == ['0', '1'] and list(count(0)) == []",
        "g = forever()\nassert [next(g) for _ in range(3)] == [0, 1, 2] and list(itertools.islice(forever(), 2)) == [0, 1]",
        "g = average()\nnext(g)\nassert g.send(2) == 2 and g.send(4) == 3",
        "assert list(pairs([1, 2, 3])) == [(1, 2), (2, 3)] and dict(pairs('ab')) == {'a': 'b'} and isinstance(count(1), types.GeneratorType)",
        "g = count(1)\nassert next(g) == 0\nwith pytest.raises(StopIteration): next(g)",
        "assert list(Countdown(3)) == [2, 1, 0]\nit = iter(Countdown(1))\nnext(it)\nwith pytest.raises(StopIteration): next(it)",
        "assert firsts(iter([1, 2, 3]), 2) == [1, 2] and firsts((x * x for x in itertools.count()), 3) == [0, 1, 4]",
    ), "Countdown", "import itertools, pytest, types"),
    "types": Tested(
        "from collections import *\nfrom datetime import *\nfrom decimal import Decimal\nfrom fractions import Fraction\nfrom dataclasses import dataclass\nfrom enum import Enum, IntEnum\n"
        "P = namedtuple('P', 'x y')\ndef point(): return P(1, 2)\ndef counts(s): return Counter(s)\ndef queue(n): return deque(range(n), n)\ndef price(): return Decimal('1.10')\ndef half(): return Fraction(1, 2)\n"
        "def day(): return date(2024, 2, 29)\ndef moment(): return datetime(2024, 1, 1, tzinfo=timezone.utc)\ndef span(): return timedelta(days=1)\ndef numbers(): return range(3)\ndef ordered(): return OrderedDict(b=1, a=2)\n"
        "def views(d): return d.keys(), d.values(), d.items()\ndef kind(x): return type(x)\nclass Color(Enum):\n    RED = 1\nclass Level(IntEnum):\n    LOW = 1\ndef level(): return Level.LOW\n@dataclass\nclass Item:\n    name: str\n    price: float = 0\n"
        "def cheapest(items): return min(items, key=lambda i: i.price)\nLIMIT = 5\ndef later(d, days): return d + timedelta(days)\ndef total(items): return sum(items, Decimal(0))\n",
        "point counts queue price half day moment span numbers ordered views kind Color level Item cheapest LIMIT later total", (
        "p = point()\nassert p == (1, 2) and p.x == 1 and p._asdict() == {'x': 1, 'y': 2}",
        "assert counts('aab') == {'a': 2, 'b': 1} and counts('aab').most_common(1) == [('a', 2)] and counts('a')['z'] == 0",
        "assert queue(2) == deque([0, 1]) and queue(2)[-1] == 1 and price() == Decimal('1.1') and str(price()) == '1.10' and half() + 1 == Fraction(3, 2)",
        "assert day() == date(2024, 2, 29) and day().year == 2024 and moment().tzinfo is not None and span() == timedelta(days=1)",
        "assert numbers() == range(3) and list(ordered()) == ['b', 'a'] and ordered() == OrderedDict(b=1, a=2)",
        "keys, values, items = views({'a': 1})\nassert list(keys) == ['a'] and keys == {'a'} and list(values) == [1] and sorted(items) == [('a', 1)]",
        "assert kind(1) is int and kind('') == str and level() == 1 and LIMIT == 5 and Color.RED.name == 'RED' and Color.RED.value == 1",
        "assert cheapest([Item('a', 2), Item('b', 1)]).name == 'b' and Item('a').price == 0",
        "assert later(date(2024, 1, 1), 1) == date(2024, 1, 2) and total([Decimal('1.5')]) == Decimal('1.5')",
    ), "Item Color", "from collections import *\nfrom datetime import *\nfrom decimal import Decimal\nfrom fractions import Fraction"),
    "pytest": Tested(
        "from fractions import Fraction\nfrom decimal import Decimal\nimport math\nclass Negative(ValueError):\n    def __init__(self, code):\n        super().__init__(f'bad {code}')\n        self.code = code\n"
        "def f(x):\n    if x < 0: raise Negative(x)\n    return x * x\ndef third(): return Fraction(1, 3)\ndef half(): return Decimal('0.5')\ndef none(): return math.nan\ndef most(): return math.inf\ndef turn(): return 1j\n",
        "Negative f third half none most turn", (
        "pytest.raises(ValueError, f, -1)\npytest.raises(Negative, lambda: f(-1))\ne = pytest.raises(ValueError, f, x=-1)\nassert e.value.code == -1 and e.type is Negative",
        "try:\n    f(-3)\n    assert False\nexcept Negative as e: assert e.code == -3",
        "@pytest.mark.parametrize('x, y', [(1, 1), pytest.param(2, 4, id='two')])\ndef test(x, y): assert f(x) == y\ntest()",
        "assert third() == pytest.approx(1 / 3) and half() == pytest.approx(0.5) and turn() == pytest.approx(1j)",
        "assert 100.4 == pytest.approx(f(10), abs=0.5) and 100.2 != pytest.approx(f(10), abs=0.1) and 101 == pytest.approx(f(10), rel=0.1)",
        "assert none() == pytest.approx(math.nan, nan_ok=True) and none() != pytest.approx(math.nan)",
        "assert most() == pytest.approx(math.inf) and most() != pytest.approx(-math.inf) and most() != pytest.approx(1.0) and 1.0 != pytest.approx(most())",
    ), "", "import math, pytest"),
}  # fmt: skip
