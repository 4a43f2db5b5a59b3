"""Small correct functions with inputs; `repairs` plants bugs in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def clamp(x: int, low: int, high: int) -> int:
    """Return x, but at least low and at most high."""
    if x < low:
        return low
    if x > high:
        return high
    return x


def digit_sum(n: int) -> int:
    """Return the sum of the decimal digits of a number from 0 on."""
    total = 0
    while n > 0:
        total += n % 10
        n //= 10
    return total


def is_prime(n: int) -> bool:
    """Return True if n is a prime number."""
    if n < 2:
        return False
    return all(n % d != 0 for d in range(2, n))


def rotate(xs: list[int], k: int) -> list[int]:
    """Return the list rotated to the left by k places."""
    if not xs:
        return xs
    k = k % len(xs)
    return xs[k:] + xs[:k]


def collatz(n: int) -> int:
    """Return the number of steps to 1: halve even numbers, else triple and add one."""
    steps = 0
    for _ in range(1000):
        if n == 1:
            break
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def count_between(xs: list[int], low: int, high: int) -> int:
    """Return how many numbers are at least low and below high."""
    count = 0
    for x in xs:
        if low <= x and x < high:
            count += 1
    return count


def second_largest(xs: list[int]) -> int | None:
    """Return the second largest different number; None if there is none."""
    different = sorted(set(xs))
    if len(different) < 2:
        return None
    return different[-2]


def run_lengths(text: str) -> list[list[str | int]]:
    """Return pairs of a character and how often it repeats in a row."""
    lengths = list[int]()
    characters = ""
    for character in text:
        if characters and characters[-1] == character:
            lengths[-1] += 1
        else:
            characters += character
            lengths.append(1)
    return [[character, length] for character, length in zip(characters, lengths, strict=True)]


def binary(n: int) -> str:
    """Return a number from 0 on in base 2, as text."""
    digits = ""
    for _ in range(64):
        digits = str(n % 2) + digits
        n = n // 2
        if n == 0:
            break
    return digits


def price(count: int, member: bool) -> int:
    """Return the price of tickets at 8: from 10 tickets on a fifth less, for members 5 less, never below 0."""
    total = count * 8
    if count >= 10:
        total = total - total // 5
    if member and total > 0:
        total = max(total - 5, 0)
    return total


def longest_rise(xs: list[int]) -> int:
    """Return the length of the longest run in which every number is larger than the one before."""
    best = 0
    length = 0
    last = None
    for x in xs:
        length = length + 1 if last is not None and x > last else 1
        best = max(best, length)
        last = x
    return best


def is_leap(year: int) -> bool:
    """Return True for a leap year of the Gregorian calendar."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


FUNCTIONS: dict[Callable[..., Any], list[tuple[Any, ...]]] = {
    clamp: [(5, 0, 3), (-1, 0, 3), (2, 0, 3), (0, 0, 3), (3, 0, 3), (4, 0, 3), (-9, -4, -2), (-3, -4, -2)],
    digit_sum: [(0,), (9,), (10,), (987,), (1000001,), (19,), (20,), (11,)],
    is_prime: [(0,), (1,), (2,), (3,), (4,), (9,), (25,), (97,), (91,), (5,)],
    rotate: [([1, 2, 3], 1), ([1, 2, 3], 0), ([1, 2, 3], 4), ([], 3), ([1, 2, 3, 4], 3), ([7], 5)],
    collatz: [(1,), (2,), (3,), (6,), (27,), (7,)],
    count_between: [([1, 2, 3], 2, 3), ([1, 2, 3], 1, 3), ([], 0, 9), ([5, 5, 5], 5, 6), ([1, 9], 1, 9)],
    second_largest: [([1, 2, 3],), ([3, 3],), ([],), ([5, 4, 5],), ([2],), ([9, 1, 9, 8],)],
    run_lengths: [("aab",), ("",), ("a",), ("abba",), ("zzzz",), ("abc",)],
    binary: [(0,), (1,), (2,), (5,), (8,), (255,), (1023,)],
    price: [(1, False), (1, True), (9, False), (10, False), (10, True), (0, True), (0, False), (25, True), (11, False)],
    longest_rise: [([1, 2, 3],), ([3, 2, 1],), ([],), ([1, 1, 2],), ([5],), ([2, 3, 1, 2, 3, 4],), ([1, 2, 2, 3],)],
    is_leap: [(2000,), (1900,), (2024,), (2023,), (2100,), (2400,), (4,)],
}  # fmt: skip
"""Function → arguments of each test; its docstring says what it should do."""
