"""Ordinary programs with their correct results: no lock may make one fail."""

# ruff: noqa: E501  (programs, one to a line)
from __future__ import annotations

from rlm_sandbox.interface import Call, Check, Input, Stdin
from rlm_sandbox.measured.honest_streams import STREAMS

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
    "counter": ("from collections import *\ndef f(s): return Counter(s)", [(Call("f", ("aab",)), {"a": 2, "b": 1})]),
    "named_tuple": ("from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\ndef f(): return P(1)", [(Call("f"), (1,))]),
    "default_dict": ("import collections\nd = collections.defaultdict(list)\nd[1].append(2)\ndef f(): return d", [(Call("f"), {1: [2]})]),
    "leetcode": ("from typing import List\nclass Solution:\n    def twoSum(self, n: List[int], t: int) -> List[int]:\n"
        "        seen = {}\n        for i, x in enumerate(n):\n            if t - x in seen: return [seen[t - x], i]\n            seen[x] = i",
        [(Call("Solution.twoSum", ([2, 7, 11], 9)), [0, 1]), (Call("twoSum", ([3, 3], 6)), [0, 1])]),
    "memo": ("from functools import lru_cache\n@lru_cache(None)\ndef fib(n): return n if n < 2 else fib(n-1) + fib(n-2)", [(Call("fib", (90,)), 2880067194370816120)]),
    "generator": ("def g():\n    yield from range(3)\ndef f(): return list(g())", [(Call("f"), [0, 1, 2])]),
    "heap": ("import heapq\ndef f(x):\n    heapq.heapify(x)\n    return [heapq.heappop(x) for _ in range(len(x))]", [(Call("f", ([3, 1, 2],)), [1, 2, 3])]),
    "regex": ("import re\ndef f(s): return re.findall(r'\\d+', s)", [(Call("f", ("a1b22",)), ["1", "22"])]),
    "dataclass": ("from dataclasses import dataclass\n@dataclass(order=True)\nclass P:\n    x: int\ndef f(): return max(P(1), P(3)).x", [(Call("f"), 3)]),
    "recursion": ("import sys\nsys.setrecursionlimit(20000)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)", [(Call("f", (10000,)), 10000)]),
    "decimal": ("from decimal import *\nfrom fractions import Fraction\ndef f(): return str(Decimal('0.1') + 1), float(Fraction(1, 3))", [(Call("f"), ("1.1", 1 / 3))]),
    "dates": ("from datetime import *\ndef f(s): return (datetime.strptime(s, '%Y-%m-%d') + timedelta(days=1)).strftime('%d %B')", [(Call("f", ("2024-02-28",)), "29 February")]),
    "prints_a_lot": ("def f():\n    for i in range(50000): print('debug', i)\n    return 1", [(Call("f"), 1)]),
    "raises_and_goes_on": ("def f(x): return 1 // x", [(Call("f", (0,)), "ZeroDivisionError"), (Call("f", (1,)), 1)]),
    "metaclass": ("class M(type):\n    def __call__(c, *a): return type.__call__(c, *a)\nclass A(metaclass=M):\n    def v(s): return 7\ndef f(): return A().v()", [(Call("f"), 7)]),
    "hashing": ("import hashlib, base64, json\ndef f(s): return hashlib.md5(s.encode()).hexdigest()[:4], json.dumps({'a': [1]})", [(Call("f", ("x",)), ("9dd4", '{"a": [1]}'))]),
    "big_memory": ("def f(): return len(bytearray(200 << 20))", [(Call("f"), 200 << 20)]),
    "threads_pool": ("from concurrent.futures import ThreadPoolExecutor\ndef f():\n    with ThreadPoolExecutor(4) as p: return sum(p.map(abs, range(-50, 50)))", [(Call("f"), 2500)]),
    "random": ("import random\ndef f(): return 0 <= random.random() < 1 and len({random.getrandbits(64) for _ in range(9)}) == 9", [(Call("f"), True)]),
    "string_io": ("import io, csv\ndef f(s): return [r for r in csv.reader(io.StringIO(s))]", [(Call("f", ("a,b\n1,2\n",)), [["a", "b"], ["1", "2"]])]),
    "cached_method": ("from functools import cache\nclass Solution:\n    @cache\n    def f(self, x): return x * x", [(Call("f", (3,)), 9)]),
    "partial_method": ("from functools import partialmethod\nclass Solution:\n    def g(self, a, x): return a * x\n    f = partialmethod(g, 3)", [(Call("f", (3,)), 9)]),
    "own_event_loop": ("import asyncio\nasync def g(x):\n    await asyncio.sleep(0)\n    return x * x\ndef f(x): return asyncio.run(g(x))", [(Call("f", (3,)), 9)] * 2),
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
    "match_and_walrus": ("def f(x):\n    match x:\n        case [a, *_] if (b := a * 2): return b\n        case {'k': v}: return v", [(Call("f", ([2, 3],)), 4), (Call("f", ({"k": 5},)), 5)]),
    "windows_lines": ("def f(x):\r\n    return x\r\n", [(Call("f", (3,)), 3)]),
    "static_method": ("class Solution:\n    @staticmethod\n    def f(x): return x\n    @classmethod\n    def g(cls, x): return cls.f(x)", [(Call("f", (3,)), 3), (Call("g", (4,)), 4)]),
    "a_wrong_one_fails": ("def f(x): return x", [(Check("assert f(1) == 1", names=("f",)), True), (Check("assert f(1) == 2", names=("f",)), "AssertionError")]),
}  # fmt: skip
"""Name → program, and for each input the value or the name of the error."""

SCRIPTS: dict[str, tuple[str, str, str]] = {
    "sum": ("print(sum(map(int, input().split())))", "1 2 3\n", "6\n"),
    "lines": ("import sys\nfor line in sys.stdin: print(line.strip()[::-1])", "abc\ndef\n", "cba\nfed\n"),
    "buffer": ("import sys\nd = sys.stdin.buffer.read().split()\nsys.stdout.buffer.write(b' '.join(d[::-1]))", "a b", "b a"),
    "fast_input": ("import os, io\ninput = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline\nprint(int(input()) + int(input()))", "1\n2\n", "3\n"),
    "open_zero": ("print(len(open(0).read()))", "12345", "5\n"),
    "own_stdout": ("import sys, io, atexit\nsys.stdout = io.StringIO()\natexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))\nprint('x')", "", "x\n"),
    "main_guard": ("def main(): print('main')\nif __name__ == '__main__': main()", "", "main\n"),
    "exit": ("print(1)\nexit()\nprint(2)", "", "1\n"),
    "sys_exit": ("import sys\nprint(1)\nsys.exit(0)", "", "1\n"),
    "thread": ("import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 27)\n"
        "def main():\n    def f(n): return 0 if n == 0 else 1 + f(n - 1)\n    print(f(50000))\nthreading.Thread(target=main).start()", "", "50000\n"),
    "globals": ("n = int(input())\ndef f():\n    global n\n    n += 1\nf()\nprint(n)", "1", "2\n"),
    "unicode": ("print(input().upper(), 'λ')", "é", "É λ\n"),
    "stderr": ("import sys\nprint('debug', file=sys.stderr)\nprint(1)", "", "1\n"),
    "big_input": ("import sys\nprint(sum(map(int, sys.stdin.read().split())))", "7 " * 300_000, "2100000\n"),
    "os_write": ("import os\nos.write(1, b'hi\\n')", "", "hi\n"),
    "file_input": ("import fileinput\nprint(sum(int(line) for line in fileinput.input()))", "1\n2\n", "3\n"),
    "open_one": ("open(1, 'w').write(input())", "x", "x"),
    "redirected": ("import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b): print(input())\nprint(b.getvalue())", "x", "x\n\n"),
    "end_of_input": ("t = 0\nwhile True:\n    try: t += int(input())\n    except EOFError: break\nprint(t)", "1\n2", "3\n"),
    "own_wrapper": ("import io\ni = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)))\nprint(i.readline(), end='')", "x\ny\n", "x\n"),
    "time_and_random": ("import time, random\nrandom.seed(1)\nt = time.time()\ntime.sleep(0.01)\nprint(time.time() > t, random.random() < 1)", "", "True True\n"),
}  # fmt: skip

HONEST: dict[str, Honest] = {
    **CALLED,
    **{name: (source, [(Stdin(text), out)]) for name, (source, text, out) in (SCRIPTS | STREAMS).items()},
}
