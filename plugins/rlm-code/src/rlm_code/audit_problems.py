"""Problems with tests and solutions for the audit of `code_tests`: functions, scripts, classes, in place, callbacks."""

# ruff: noqa: E501  (tests, one to a line)
from __future__ import annotations

from typing import Any, NamedTuple


class Problem(NamedTuple):
    """A problem: the name that its tests use, a solution, and tests in one of the formats of `rlm_code.cases`.

    Args:
        name: Function or class that a program defines; empty for a script.
        solution: A correct program.
        tests: The column ``tests``.
    """

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
