"""Huge integers, and numbers that differ from another by less than any rounding error."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

from rlm_audit.mathematics.integers import SIGNS, signed
from rlm_audit.mathematics.subject import Subject

Huge = tuple[str, int, int, int]
"""Kind, base, exponent and offset."""


def _draw_huge(rng: random.Random, size: int) -> Huge:
    """Return kind, two parameters and an offset of a huge integer."""
    kind = rng.choice(["power", "factorial", "binomial", "quotient", "product"])
    n = rng.randint(30, 60 + 60 * size)
    base = rng.randint(2, 5 + size)
    return kind, base, n, rng.choice([0, 0, -1, 1, rng.randint(-99, 99)])


def huge_value(value: Huge) -> int:
    """Return the integer that a drawn tuple stands for."""
    kind, base, n, offset = value
    values = {
        "power": base**n,
        "factorial": math.factorial(n),
        "binomial": math.comb(n, n // 2),
        "quotient": ((base + base % 2 + 1) ** n - 1) // 2,
        "product": 3 * base**n,
    }
    return values[kind] + offset


def _write_huge(value: Huge, rng: random.Random) -> str:
    kind, base, n, offset = value
    odd = base + base % 2 + 1
    texts = {
        "power": f"{base}^{{{n}}}",
        "factorial": f"{n}!",
        "binomial": f"\\binom{{{n}}}{{{n // 2}}}",
        "quotient": f"\\frac{{{odd}^{{{n}}}-1}}{{2}}",
        "product": f"3 \\cdot {base}^{{{n}}}",
    }
    return texts[kind] + (signed(offset) if offset else "")


def _split_power(value: Huge, rng: random.Random) -> str:
    kind, base, n, offset = value
    k = rng.randint(1, n - 1)
    odd = base + base % 2 + 1
    texts = {
        "power": f"{base}^{{{k}}} \\cdot {base}^{{{n - k}}}",
        "factorial": f"{n} \\cdot {n - 1}!",
        "binomial": f"\\binom{{{n}}}{{{n - n // 2}}}",
        "quotient": f"\\frac{{{odd} \\cdot {odd}^{{{n - 1}}}-1}}{{2}}",
        "product": f"{base}^{{{n}}}+2 \\cdot {base}^{{{n}}}",
    }
    return texts[kind] + (signed(offset) if offset else "")


def _change(index: int, step: int) -> Callable[[Huge, random.Random], Huge | None]:
    def changed(value: Huge, rng: random.Random) -> Huge | None:
        numbers = [*value[1:]]
        numbers[index - 1] += step * rng.choice(SIGNS)
        other = (value[0], numbers[0], numbers[1], numbers[2])
        return None if min(other[1:3]) < 2 or huge_value(other) == huge_value(value) else other

    return changed


HUGE = Subject(
    draw=_draw_huge,
    write=_write_huge,
    notations={
        "split": _split_power,
        "all digits": lambda value, rng: str(huge_value(value)),
        "a fraction": lambda value, rng: f"\\frac{{{6 * huge_value(value)}}}{{6}}",
        "half of twice": lambda value, rng: f"\\frac{{2({_write_huge(value, rng)})}}{{2}}",
    },
    near_misses={
        "one more or less": _change(3, 1),
        "the exponent": _change(2, 1),
        "the base": _change(1, 1),
        "the sign of the offset": lambda value, rng: (*value[:3], -value[3]),
    },
    wrong_texts={
        "times a number close to one": lambda value, rng: f"{_write_huge(value, rng)}+2^{{-{rng.randint(30, 300)}}}",
        "a rounded mantissa": lambda value, rng: (
            f"{huge_value(value):.12e}".replace("e+", " \\times 10^{") + "}"
            if huge_value(value) < 10**300 and int(Fraction(f"{huge_value(value):.12e}")) != huge_value(value)
            else None
        ),
    },
)


def _draw_tiny(rng: random.Random, size: int) -> tuple[int, int, int]:
    return rng.randint(0, 3), rng.randint(2, 12), rng.randint(20, 300 * size)


TINY = Subject(
    draw=_draw_tiny,
    write=lambda value, rng: str(value[0]),
    wrong_texts={
        "an inverse power more": lambda value, rng: f"{value[0]}+{value[1]}^{{-{value[2]}}}",
        "an inverse power less": lambda value, rng: f"{value[0]}-\\frac{{1}}{{{value[1]}^{{{value[2]}}}}}",
        "an exponential more": lambda value, rng: f"{value[0]}+e^{{-{value[2]}}}",
        "a root of a number close to it": lambda value, rng: f"\\sqrt{{{value[0] ** 2}+10^{{-{value[2]}}}}}",
        "a cosine": lambda value, rng: f"{value[0]}\\cos(10^{{-{value[2]}}})" if value[0] else None,
        "a power of zero": lambda value, rng: f"{value[0] - 1}+0^0" if value[0] else "0^0-1",
        "a ratio of large numbers": lambda value, rng: (
            "\\frac{<a>1}{10^{<n>}}".replace("<a>", f"{value[0]}{'0' * value[2]}").replace("<n>", str(value[2] + 1))
            if value[0]
            else None
        ),
        "nines": lambda value, rng: f"{value[0] - 1}.{'9' * min(value[2], 200)}" if value[0] else None,
        "a division by zero": lambda value, rng: rng.choice(
            [
                f"\\frac{{{value[0]}}}{{0}}",
                "\\frac{0}{0}",
                f"{value[0]}+\\frac{{0}}{{1-1}}",
                "\\ln 0",
                "\\tan 90^\\circ",
            ]
        ),
    },
)
