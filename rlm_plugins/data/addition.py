"""Column addition: problems of a chosen difficulty with their solution, and a fixed split into training and test."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice, zip_longest
from typing import NamedTuple

from rlm_plugins.errors import RecipeError

HELD_OUT = 32
"""Hash bytes (of 256) that put a problem into the test split: one eighth of them."""

MAX_DRAWS_PER_TEST = 400
"""Samples per test problem before a small set of problems counts as exhausted."""


class Problem(NamedTuple):
    """The sum of two numbers."""

    a: int
    b: int

    @property
    def question(self) -> str:
        """Text of the question.

        >>> Problem(347, 285).question
        '347+285=?'
        """
        return f"{self.a}+{self.b}=?"

    @property
    def held_out(self) -> bool:
        """True if the problem is in the test split, by its hash; a+b and b+a are one problem.

        >>> Problem(347, 285).held_out == Problem(285, 347).held_out
        True
        """
        name = "+".join(map(str, sorted(self)))
        return hashlib.blake2b(name.encode(), digest_size=1).digest()[0] < HELD_OUT

    def solve(self, forget: Callable[[], bool] = lambda: False) -> tuple[str, str]:
        """Solve the problem column by column from the right, each as ``x+y+carry=sum``.

        Args:
            forget: Called at each carry; True drops it, and all later columns follow from the mistake.
                (The carry of the leftmost column becomes the first digit and is never dropped.)

        >>> Problem(347, 285).solve()
        ('7+5+0=12;4+8+1=13;3+2+1=6', '632')
        >>> Problem(347, 285).solve(forget=lambda: True)
        ('7+5+0=12;4+8+0=12;3+2+0=5', '522')
        """
        carry, columns, result = 0, [], ""
        for x, y in zip_longest(str(self.a)[::-1], str(self.b)[::-1], fillvalue="0"):
            if carry and forget():
                carry = 0
            total = int(x) + int(y) + carry
            columns.append(f"{x}+{y}+{carry}={total}")
            carry, digit = divmod(total, 10)
            result = f"{digit}{result}"
        return ";".join(columns), f"{carry or ''}{result}"


@dataclass(frozen=True)
class Difficulty:
    """Problems of one difficulty.

    Args:
        lengths: Digits of both numbers; each length is equally likely.
        min_carries: Minimum number of columns that carry.
        max_carries: Maximum number of columns that carry.

    Raises:
        RecipeError: No problem has this difficulty.
    """

    lengths: range
    min_carries: int
    max_carries: int

    def __post_init__(self) -> None:
        if not self.lengths:
            raise RecipeError("`min_digits` exceeds `digits`", where="environment.min_digits")
        for digits in self.lengths:
            if count(digits, self.min_carries, self.max_carries) == 0:
                raise RecipeError(
                    f"no {digits}-digit sum has between {self.min_carries} and {self.max_carries} carries",
                    where="environment.min_carries",
                    allowed=f"0 to {digits} carries, `min_carries` at most `max_carries`",
                )

    def training(self, seed: int) -> Iterator[Problem]:
        """Return an endless stream of training problems, drawn with replacement."""
        return (problem for problem in self._sample(f"train {seed}") if not problem.held_out)

    def tests(self, count: int) -> list[Problem]:
        """Return `count` different held-out problems, always the same ones."""
        problems: dict[tuple[int, ...], Problem] = {}
        for problem in islice(self._sample("tests"), MAX_DRAWS_PER_TEST * count):
            if problem.held_out:
                problems.setdefault(tuple(sorted(problem)), problem)
            if len(problems) == count:
                break
        if len(problems) < count:
            raise RecipeError(
                f"expected {count} test problems, but only {len(problems)} of this difficulty are held out",
                where="environment.test_rows",
                hint="fewer `test_rows`, or more `digits`",
            )
        return list(problems.values())

    def _sample(self, stream: str) -> Iterator[Problem]:
        rng = random.Random(stream)
        while True:
            yield draw(rng, rng.choice(self.lengths), self.min_carries, self.max_carries)


def draw(rng: random.Random, digits: int, min_carries: int, max_carries: int) -> Problem:
    """Draw a problem uniformly from all pairs of `digits`-digit numbers with that many carries.

    It is built column by column, each choice weighted by the number of completions, so rare difficulties cost no more.
    """
    a, b, carry = 0, 0, 0
    low, high = min_carries, max_carries
    for position in range(digits):
        columns_left = digits - position
        without_carry = len(_pairs(columns_left == 1, carry, 0)) * count(columns_left - 1, low, high, 0)
        carry_out = int(rng.randrange(count(columns_left, low, high, carry)) >= without_carry)
        x, y = rng.choice(_pairs(columns_left == 1, carry, carry_out))
        a, b = a + x * 10**position, b + y * 10**position
        low, high, carry = low - carry_out, high - carry_out, carry_out
    return Problem(a, b)


@cache
def count(digits: int, min_carries: int, max_carries: int, carry: int = 0) -> int:
    """Return the number of pairs of `digits`-digit numbers with that many carries, given the incoming `carry`.

    >>> count(1, 0, 1), count(1, 1, 1), count(1, 2, 2)  # 1…9 + 1…9
    (81, 45, 0)
    """
    if digits == 0:
        return int(min_carries <= 0 <= max_carries)
    total = 0
    for carry_out in (0, 1):
        rest = count(digits - 1, min_carries - carry_out, max_carries - carry_out, carry_out)
        total += len(_pairs(digits == 1, carry, carry_out)) * rest
    return total


@cache
def _pairs(leading: bool, carry: int, carry_out: int) -> list[tuple[int, int]]:
    """Return the digit pairs of one column (no leading zero) with incoming `carry` and outgoing `carry_out`."""
    digits = range(int(leading), 10)
    return [(x, y) for x in digits for y in digits if (x + y + carry) // 10 == carry_out]
