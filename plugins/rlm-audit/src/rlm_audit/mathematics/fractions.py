"""Fractions and decimals."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from rlm_audit.mathematics.integers import SIGNS
from rlm_audit.mathematics.subject import Subject
from rlm_audit.numbers import plain


def latex_fraction(value: Fraction) -> str:
    """Return a fraction in lowest terms, or an integer."""
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def draw_fraction(rng: random.Random, size: int) -> Fraction:
    """Return a fraction that is no integer."""
    denominator = rng.randint(2, 6 * size + 3)
    numerator = rng.choice(SIGNS) * rng.randint(1, 10**size)
    value = Fraction(numerator, denominator)
    return value if value.denominator > 1 else value + Fraction(1, denominator)


def _terminates(value: Fraction) -> bool:
    return 10 ** value.denominator.bit_length() % value.denominator == 0


def _mixed(value: Fraction, rng: random.Random) -> str | None:
    whole = int(abs(value))
    rest = abs(value) - whole
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}\\frac{{{rest.numerator}}}{{{rest.denominator}}}" if whole and rest else None


def _repeating(value: Fraction, rng: random.Random) -> str | None:
    whole, rest = divmod(abs(value.numerator), value.denominator)
    digits, seen = "", dict[int, int]()
    while rest and rest not in seen:
        seen[rest] = len(digits)
        digit, rest = divmod(10 * rest, value.denominator)
        digits += str(digit)
    if not rest:
        return None
    start = seen[rest]
    return f"{'-' if value < 0 else ''}{whole}.{digits[:start]}\\overline{{{digits[start:]}}}"


def _truncated(value: Fraction, rng: random.Random) -> str | None:
    if _terminates(value):
        return None
    places = rng.randint(1, 15)
    digits = int(abs(value) * 10**places)
    text = f"{digits // 10**places}.{digits % 10**places:0{places}d}"
    return f"-{text}" if value < 0 else text


FRACTIONS = Subject(
    draw=draw_fraction,
    write=lambda value, rng: latex_fraction(value),
    notations={
        "a slash": lambda value, rng: f"{value.numerator}/{value.denominator}",
        "not in lowest terms": lambda value, rng: f"\\frac{{{3 * value.numerator}}}{{{3 * value.denominator}}}",
        "the sign below": lambda value, rng: f"\\frac{{{-value.numerator}}}{{-{value.denominator}}}",
        "a mixed number": _mixed,
        "a decimal": lambda value, rng: plain(value) if _terminates(value) else None,
        "a repeating decimal": _repeating,
        "a sum": lambda value, rng: f"{latex_fraction(value - Fraction(1, 2))}+\\frac12",
        "a double fraction": lambda value, rng: f"\\frac{{{latex_fraction(value / 2)}}}{{\\frac{{1}}{{2}}}}",
        "an equation": lambda value, rng: f"x = {latex_fraction(value)}",
        "a power": lambda value, rng: f"{value.numerator} \\cdot {value.denominator}^{{-1}}",
    },
    near_misses={
        "the numerator": lambda value, rng: Fraction(value.numerator + rng.choice(SIGNS), value.denominator),
        "the denominator": lambda value, rng: Fraction(value.numerator, value.denominator + rng.choice(SIGNS)),
        "inverted": lambda value, rng: 1 / value,
        "the sign": lambda value, rng: -value,
        "one more": lambda value, rng: value + 1,
    },
    wrong_texts={
        "a truncated decimal": _truncated,
        "numerator and denominator as a list": lambda value, rng: f"{value.numerator}, {value.denominator}",
        "a ratio": lambda value, rng: f"{value.numerator}:{value.denominator}",
    },
)


def _draw_decimal(rng: random.Random, size: int) -> Fraction:
    places = rng.randint(1, size + 1)
    digits = rng.randint(1, 10 ** (size + places)) * 10 + rng.randint(1, 9)
    return Fraction(rng.choice(SIGNS) * digits, 10 ** (places + 1))


def _last_digit(value: Fraction, rng: random.Random) -> Fraction:
    return value + rng.choice(SIGNS) * Fraction(1, 10 ** len(plain(value).partition(".")[2]))


def _of_constants(value: Fraction, rng: random.Random) -> str | None:
    """Return a sum of constants near a decimal of four digits.

    It has more terms than the decimal has digits: `e+e+e` is 3e, which is 8.15 if rounded, and no fit.
    """
    if not 10 < value < 60 or len(plain(value)) != 5:
        return None
    counts = [(a, b) for a in range(20) for b in range(20) if a + b > 4]
    sums = {a * math.pi + b * math.e: "+".join(["\\pi"] * a + ["e"] * b) for a, b in counts}
    near = min(sums, key=lambda number: abs(number - value))
    return None if abs(near - value) > Fraction(1, 20) else sums[near]


DECIMALS = Subject(
    draw=_draw_decimal,
    write=lambda value, rng: plain(value),
    notations={
        "trailing zeros": lambda value, rng: f"{plain(value)}00",
        "a fraction": lambda value, rng: latex_fraction(value),
        "without the leading zero": lambda value, rng: plain(value).replace("0.", ".", 1) if abs(value) < 1 else None,
        "scientific notation": lambda value, rng: f"{plain(value / 1000)} \\times 10^{{3}}",
        "small scientific notation": lambda value, rng: f"{plain(value * 100)} \\cdot 10^{{-2}}",
        "a programmer's notation": lambda value, rng: f"{plain(value * 100)}e-2",
        "a percentage": lambda value, rng: f"{plain(value * 100)}\\%",
        "per mille": lambda value, rng: plain(value * 1000) + rng.choice(["‰", "\\permil"]),
    },
    near_misses={
        "the last digit": _last_digit,
        "one digit fewer": lambda value, rng: Fraction(plain(value)[:-1] or "0"),
        "the decimal point": lambda value, rng: value / 10,
        "the sign": lambda value, rng: -value,
        "a further digit": lambda value, rng: Fraction(f"{plain(value)}{rng.randint(1, 9)}"),
        "a far digit": lambda value, rng: value + Fraction(1, 10 ** rng.randint(12, 60)),
    },
    wrong_texts={
        "a comma": lambda value, rng: plain(value).replace(".", ","),
        "a fraction beside it": lambda v, rng: f"{latex_fraction(v)}+\\frac{{1}}{{{10 ** rng.randint(3, 9) + 1}}}",
        "constants without digits": _of_constants,
        "per mille of a percentage": lambda value, rng: f"{plain(value * 100)}‰",
        "a percentage of a percentage": lambda value, rng: f"{plain(value)}\\%" if abs(value) < 1 else None,
    },
)
