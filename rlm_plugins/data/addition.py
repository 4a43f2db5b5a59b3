"""Column addition: problems of a chosen difficulty, worked by hand, and a split that no run can cross."""

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
"""Of the 256 values of the byte that decides on which side of the split a problem falls: one eighth is for tests."""

PATIENCE = 400
"""Draws per test row before a small set of problems counts as exhausted."""


class Problem(NamedTuple):
    """The sum of two numbers."""

    a: int
    b: int

    @property
    def question(self) -> str:
        """What the model is asked.

        >>> Problem(347, 285).question
        '347+285=?'
        """
        return f"{self.a}+{self.b}=?"

    @property
    def held_out(self) -> bool:
        """Whether it may only be tested, decided by a hash of the problem itself; a+b and b+a are one problem.

        >>> Problem(347, 285).held_out == Problem(285, 347).held_out
        True
        """
        name = "+".join(map(str, sorted(self)))
        return hashlib.blake2b(name.encode(), digest_size=1).digest()[0] < HELD_OUT

    def work(self, forget: Callable[[], bool] = lambda: False) -> tuple[str, str]:
        """Adds column by column from the right, each written as ``x+y+carry=sum``.

        Args:
            forget: Asked whenever a carry is due; True drops it, and everything after follows from the mistake.
                (What the leftmost column carries is written down in front, never forgotten.)

        Returns:
            The columns and the result.

        >>> Problem(347, 285).work()
        ('7+5+0=12;4+8+1=13;3+2+1=6', '632')
        >>> Problem(347, 285).work(forget=lambda: True)
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
class Kind:
    """Problems of one difficulty.

    Args:
        lengths: Digits of both numbers; each length is as likely.
        min_carries: Fewest columns that carry.
        max_carries: Most columns that carry.

    Raises:
        RecipeError: There is no such problem.
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
                    f"no {digits}-digit sum carries between {self.min_carries} and {self.max_carries} times",
                    where="environment.min_carries",
                    allowed=f"0 to {digits} carries, the fewest no more than the most",
                )

    def training(self, seed: int) -> Iterator[Problem]:
        """An endless stream of problems to train on; they may repeat."""
        return (problem for problem in self._draws(f"train {seed}") if not problem.held_out)

    def tests(self, wanted: int) -> list[Problem]:
        """Different held-out problems, always the same ones.

        Raises:
            RecipeError: There are not so many.
        """
        found: dict[tuple[int, ...], Problem] = {}
        for problem in islice(self._draws("tests"), PATIENCE * wanted):
            if problem.held_out:
                found.setdefault(tuple(sorted(problem)), problem)
            if len(found) == wanted:
                break
        if len(found) < wanted:
            raise RecipeError(
                f"only {len(found)} different problems of this kind are held out for tests, {wanted} are asked for",
                where="environment.test_rows",
                hint="ask for fewer test rows, or for more digits",
            )
        return list(found.values())

    def _draws(self, stream: str) -> Iterator[Problem]:
        rng = random.Random(stream)
        while True:
            yield draw(rng, rng.choice(self.lengths), self.min_carries, self.max_carries)


def draw(rng: random.Random, digits: int, min_carries: int, max_carries: int) -> Problem:
    """One of all problems with two numbers of `digits` digits and that many carries, each as likely as any other.

    It is built column by column, the choice weighted by what each leaves open, so rare difficulties cost nothing.
    """
    a, b, carry = 0, 0, 0
    low, high = min_carries, max_carries
    for position in range(digits):
        left = digits - position
        plain = len(_pairs(left == 1, carry, 0)) * count(left - 1, low, high, 0)
        over = int(rng.randrange(count(left, low, high, carry)) >= plain)
        x, y = rng.choice(_pairs(left == 1, carry, over))
        a, b = a + x * 10**position, b + y * 10**position
        low, high, carry = low - over, high - over, over
    return Problem(a, b)


@cache
def count(digits: int, min_carries: int, max_carries: int, carry: int = 0) -> int:
    """How many pairs of numbers of `digits` digits carry that often, when `carry` comes in from the right.

    >>> count(1, 0, 1), count(1, 1, 1), count(1, 2, 2)  # 1…9 + 1…9
    (81, 45, 0)
    """
    if digits == 0:
        return int(min_carries <= 0 <= max_carries)
    return sum(
        len(_pairs(digits == 1, carry, over)) * count(digits - 1, min_carries - over, max_carries - over, over)
        for over in (0, 1)
    )


@cache
def _pairs(leading: bool, carry: int, over: int) -> list[tuple[int, int]]:
    """The digits that may stand in one column (no leading zero) when it takes in `carry` and hands on `over`."""
    digits = range(int(leading), 10)
    return [(x, y) for x in digits for y in digits if (x + y + carry) // 10 == over]
