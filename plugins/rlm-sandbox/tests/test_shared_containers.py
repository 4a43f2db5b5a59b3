"""Containers that tests and program share, and exceptions of a program: each check ends as in plain Python."""

from __future__ import annotations

import pytest
from rlm_sandbox import Check, Limits, Local, Program

LIMITS = Limits(seconds=20.0)
BAG = "class Bag:\n    def __init__(self, xs): self.xs = {}\n    def all(self): return {}\n"
BAG_CHECKS = {
    "argument": "x = [1]\nb = Bag(x)\nx.append(2)\nassert b.all() == [1]",
    "result": "b = Bag([1])\nb.all().append(9)\nassert b.all() == [1]",
    "attribute": "b = Bag([])\nb.xs.append(3)\nassert b.all() == [3] and b.xs is b.xs",
}
SAME_AS_PYTHON: dict[str, tuple[str, ...]] = {
    "updates a dict": (
        "def f(d, e):\n    d.update(e)\n    return d",
        "d = {1: 2}\nassert f(d, {3: 4}) == {1: 2, 3: 4} and d == {1: 2}",
    ),
    **{f"keeps the {name}": (BAG.format("xs", "self.xs"), check) for name, check in BAG_CHECKS.items()},
    **{f"copies the {name}": (BAG.format("list(xs)", "self.xs[:]"), check) for name, check in BAG_CHECKS.items()},
    "rows that are one list": ("def f(n): return [[0] * n] * n", "g = f(2)\ng[0][0] = 1\nassert g == [[1, 0], [0, 0]]"),
    "a cached result": (
        "import functools\n@functools.cache\ndef f(n): return list(range(n))",
        "f(2).clear()\nassert f(2) == [0, 1]",
    ),
    "the same list": ("def f(x):\n    x[:] = set(x)\n    return x", "a = [1, 1]\nb = f(a)\nassert b is a and a == [1]"),
    "a list in itself": ("def f(x):\n    x.append(x)\n    return x", "a = f([])\nassert a[0] is a and len(a) == 1"),
    "a generator": (
        "def f(x):\n    x.append(1)\n    yield 5\n    x.append(2)",
        "x = []\nassert list(f(x)) == [5]\nassert x == [1, 2]",
    ),
    "a context manager": (
        "import contextlib\n@contextlib.contextmanager\ndef f(x):\n    x.append('a')\n    yield x\n    x.append('out')",
        "x = []\nwith f(x) as y:\n    y.append('body')\nassert x == ['a', 'body', 'out']",
    ),
    "a closure": (
        "def f(out): return lambda x: out.append(x)",
        "x = []\nadd = f(x)\nadd(1)\nadd(2)\nassert x == [1, 2]",
    ),
    "a set, a deque and bytes": (
        "def f(s, q, b):\n    s.add(3)\n    b[0] = 65\n    return q.popleft()",
        "import collections\ns, q, b = {1}, collections.deque([1, 2]), bytearray(b'x')\nassert f(s, q, b) == 1\n"
        "assert s == {1, 3} and q == collections.deque([2]) and b == b'A'",
    ),
    "an order": (
        "import collections\ndef f():\n    d = collections.OrderedDict(a=1, b=2)\n    d.move_to_end('a')\n    return d",
        "assert list(f()) == ['a', 'b']",
    ),
}


CAUGHT = "try:\n    f()\nexcept {}:\n    assert {}\nelse:\n    assert False"
RAISES: dict[str, tuple[str, ...]] = {
    "of a library": ("import json\ndef f(): json.loads('{')", "json.JSONDecodeError as e", "e.pos == 1"),
    "with its own text": (
        "class Low(ValueError):\n    def __init__(self, n): self.n = n\n    def __str__(self): return f'low {self.n}'\n"
        "def f(): raise Low(2)",
        "ValueError as e",
        "str(e) == 'low 2' and e.n == 2",
    ),
    "with another text": (
        "class Low(ValueError):\n    def __str__(self): return 'low'\ndef f(): raise Low('high')",
        "ValueError as e",
        "'high' in str(e)",
    ),
    "named as a built-in one": ("class KeyError(Exception): pass\ndef f(): raise KeyError(1)", "KeyError", "True"),
    "a base of that of a library": ("def f(): raise ValueError", "json.JSONDecodeError", "True"),
}


def passing_in_python(source: str, *checks: str) -> list[bool]:
    """Return whether each check passes; they run one after the other, in the process of the program."""
    program: dict[str, object] = {"__name__": "solution"}
    exec(source, program)
    found = []
    for check in checks:
        try:
            exec(check, {name: program[name] for name in ("f", "Bag") if name in program})
            found.append(True)
        except Exception:
            found.append(False)
    return found


@pytest.mark.parametrize("case", [*SAME_AS_PYTHON, *RAISES])
def test_a_check_ends_as_in_one_process(case: str, sandbox: Local) -> None:
    source, check, *condition = (SAME_AS_PYTHON | RAISES)[case]
    if condition:
        check = "import decimal, json, queue\n" + CAUGHT.format(check, *condition)
    name = "Bag" if "class Bag" in source else "f"
    (output,) = sandbox.run(Program(source), [Check(check, names=(name,), classes=("Bag",))], LIMITS)
    assert [output.status == "ok"] == passing_in_python(source, check), output.error
    assert output.status in ("ok", "error")


@pytest.mark.parametrize(
    "check",
    [
        "xs = [2, 1]\nassert f(xs) == sorted(xs)",
        "for xs in ([2, 1], [1]):\n    assert f(xs) == sorted(xs), xs",
        "def key(x):\n    return x\nxs = [2, 1]\nassert f(xs, key) == sorted(xs)",
        "xs = [2, 1]\nassert list(f(xs)) == sorted(xs)",
        "xs = [2, 1]\nr = f(xs)\nwant = sorted(xs)\nr = list(r)\nassert r == want",
        "import unittest\nxs = [2, 1]\nr = f(xs)\nunittest.TestCase().assertEqual(list(r), sorted(xs))",
    ],
)
@pytest.mark.parametrize("result", ["return xs", "return []", "return iter(xs)", "yield from xs"])
def test_a_program_that_empties_its_argument_does_not_change_the_expected_value(
    check: str, result: str, sandbox: Local
) -> None:
    cheat = Program(f"def f(xs, key=None):\n    xs.clear()\n    if key: key(0)\n    {result}\n")
    (output,) = sandbox.run(cheat, [Check(check, names=("f",))], LIMITS)
    assert output.status == "error"


@pytest.mark.parametrize(
    "check",
    [
        "xs = [2, 1]\nr = f(xs)\nassert sorted(r) == sorted(xs) and len(r) == len(xs)",
        "xs = [2, 1]\nr = f(xs)\nassert r == [1, 2] and xs == [1, 2]",
        "xs = [3, 2, 1]\nr = f(xs)\nassert xs[: len(r)] == [1, 2, 3]",
    ],
)
def test_a_program_that_sorts_in_place_and_returns_its_argument_passes(check: str, sandbox: Local) -> None:
    program = Program("def f(xs):\n    xs.sort()\n    return xs\n")
    (output,) = sandbox.run(program, [Check(check, names=("f",))], LIMITS)
    assert output.status == "ok", output.error


@pytest.mark.parametrize(
    "reply",
    [
        "{**m, 'heap': [[n, []] for n in range(99)], 'forget': []}",
        "{**m, 'heap': [['a', {'$dict': 1}]], 'forget': ['b', []]}",
        "{**m, 'heap': [], 'forget': [*range(99)]}",
        "{'value': {'$shared': 999}, 'heap': [], 'forget': []}",
    ],
)
def test_forged_contents_do_not_pass(reply: str, sandbox: Local) -> None:
    source = (
        "import gc\ndef f(xs):\n    heap = next(o for o in gc.get_objects() if type(o).__name__ == 'Heap')\n"
        f"    heap.attach = lambda m: {reply}\n    return []\n"
    )
    for check in ("want = [1, 2]\nxs = [2, 1]\nassert f(xs) == want", "xs = [2, 1]\nassert f(xs) == sorted(xs)"):
        (output,) = sandbox.run(Program(source), [Check(check, names=("f",))], LIMITS)
        assert output.status in ("error", "garbled")


def test_a_container_is_shared_while_both_sides_hold_it(sandbox: Local) -> None:
    program = Program(
        "import gc\nkept = []\ndef f(xs): return [x + 1 for x in xs]\ndef keep(xs): kept.append(xs)\n"
        "def count():\n    return next(len(o._containers) for o in gc.get_objects() if type(o).__name__ == 'Heap')\n"
    )
    check = (
        "xs = list(range(9))\nfor n in range(500):\n    xs = f(xs)\nassert xs[0] == 500\nassert count() < 5\n"
        "held = [[n] for n in range(50)]\nfor x in held:\n    keep(x)\nassert 50 <= count() < 55\n"
        "del held, x\nassert count() < 55\nassert count() < 5"
    )
    (output,) = sandbox.run(program, [Check(check, names=("f", "keep", "count"))], LIMITS)
    assert output.status == "ok", output


def test_an_error_of_unittest_skips_no_test(sandbox: Local) -> None:
    source = "import unittest\ndef f(): raise unittest.SkipTest"
    check = (
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(), 1)\n"
        "result = unittest.TestResult()\nunittest.defaultTestLoader.loadTestsFromTestCase(T).run(result)\n"
        "assert result.wasSuccessful()"
    )
    (output,) = sandbox.run(Program(source), [Check(check, names=("f",))], LIMITS)
    assert output.status == "error"


BODIES = (
    "return x",
    "return list(x)",
    "x.append(9);return x",
    "x.append(9)",
    "y=list(x);y.append(9);return y",
    "return [x]",
    "return [x,x]",
    "return {'k':x}",
    "x.clear();return x",
    "kept.append(x);return kept",
    "kept.append(x);return kept[-1]",
    "kept.append(list(x));return kept[0]",
    "x.reverse();return x",
    "return iter(x)",
    "x.append(9);return iter(x)",
    "return x.pop",
    "raise ValueError(x.append(9) or 'e')",
    "x.append(x);return len(x)",
    "return {tuple(x):x}[tuple(x)]",
)
"""Bodies of ``def f(x)``; `kept` is a list of the program."""
CHECKS = (
    "a=[1,2]\nr=f(a)\nassert a==[1,2,9]",
    "a=[1,2]\nr=f(a)\nassert r is a",
    "a=[1,2]\nr=f(a)\nassert r is not a",
    "a=[1,2]\nr=f(a)\na.append(5)\nassert r==a",
    "a=[1,2]\nr=f(a)\na.append(5)\nassert r!=a",
    "a=[1,2]\nr=f(a)\nr2=f(a)\nassert r==r2",
    "a=[1,2]\nr=f(a)\nr2=f(a)\nassert r is r2",
    "a=[1,2]\nr=f(a)\nassert list(r)==[1,2,9]",
    "a=[1,2]\nr=f(a)\nassert r[0] is a",
    "a=[1,2]\nr=f(a)\nr[0].append(7)\nassert a==[1,2,7]",
    "a=[1,2]\nr=f(a)\nr.append(7)\nassert a==[1,2,7]",
    "a=[1,2]\nf(a)\nf(a)\nassert a==[1,2,9,9]",
    "a=[1,2]\nassert f(a)==[1,2,9]\nassert a==[1,2,9]",
    "a=[1,2]\nc=[a,a]\nf(a)\nassert c==[[1,2,9],[1,2,9]]",
    "a=[[1],[2]]\nr=f(a)\nr[0].append(3)\nassert a[0]==[1,3]",
    "a=[[1],[2]]\nr=f(a)\nassert r[0] is a[0]",
    "try:\n    f([1,2])\nexcept ValueError as e:\n    assert 'e' in str(e)",
    "a=[1,2]\ntry:\n    f(a)\nexcept ValueError: pass\nassert a==[1,2,9]",
    "a=[1,2]\ng=f(a)\ng()\nassert a==[1]",
    "a=[1,2]\ng=f(a)\na.append(4)\nassert next(g)==1 and list(g)==[2,4]",
    "def h(v):\n    r=f(v)\n    return r\na=[1,2]\nassert h(a)==[1,2,9]\nassert a==[1,2,9]",
    "a=[1,2]\nassert [f(a),f(a)]==[[1,2,9],[1,2,9,9]]",
    "a=[1,2]\nx=f(a)\nx=None\na.append(3)\ny=f(a)\nassert y==[1,2,3]",
    "import copy\na=[1,2]\nb=copy.copy(a)\nr=f(a)\nassert a==b",
    "a=[2,1]\nassert f(a)==sorted(a)",
    "a=[1,2]\nr,s=f(a)\nassert r is s",
    "def it():\n    yield from ([1],[2])\nrs=[f(v) for v in it()]\nassert rs==[[1],[2]]",
)
STATEMENT_OF_TWO_CALLS = "a=[1,2]\nassert [f(a),f(a)]==[[1,2,9],[1,2,9,9]]"
"""In plain Python both items are one list, which has both changes."""


def test_no_pair_passes_that_fails_in_python(sandbox: Local) -> None:
    """Some pass only in Python: a statement of two calls, and ``r == sorted(a)``, see the list from before."""
    stricter, total = 0, 0
    for body in BODIES:
        source = "kept=[]\ndef f(x):\n " + body.replace(";", "\n ") + "\n"
        outputs = list(sandbox.run(Program(source), [Check(check, names=("f",)) for check in CHECKS], LIMITS))
        for check, output, expected in zip(CHECKS, outputs, passing_in_python(source, *CHECKS), strict=True):
            if output.status == "ok" and check != STATEMENT_OF_TWO_CALLS:
                assert expected, (body, check)
            stricter, total = stricter + (expected and output.status != "ok"), total + 1
    assert (total, stricter) == (513, 5)
