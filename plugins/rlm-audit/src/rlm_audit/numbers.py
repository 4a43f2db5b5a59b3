"""Numbers as plain text: notations of one value, and values beside it. For rewards that compare numbers exactly."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

from rlm_audit.case import Case, Family, Generator


def decimal(rng: random.Random, size: int) -> Fraction:
    """Return a random decimal number with up to 3 · `size` digits."""
    digits = rng.randint(1, 3 * size)
    return Fraction(rng.randint(-(10**digits), 10**digits), 10 ** rng.choice([0, 0, rng.randint(0, digits)]))


def plain(value: Fraction) -> str:
    """Return a terminating decimal in plain notation.

    >>> plain(Fraction(-5, 4)), plain(Fraction(100)), plain(Fraction(-1, 20))
    ('-1.25', '100', '-0.05')
    """
    places = 0
    while value.denominator != 1 and (value * 10**places).denominator != 1:
        places += 1
    digits = str(abs(int(value * 10**places))).rjust(places + 1, "0")
    text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return f"-{text}" if value < 0 else text


def grouped(value: Fraction) -> str:
    """Return a decimal with separators of thousands."""
    whole, dot, places = plain(abs(value)).partition(".")
    return f"{'-' if value < 0 else ''}{int(whole):,}{dot}{places}"


NOTATIONS: dict[str, Callable[[Fraction, random.Random], str]] = {
    "the same text": lambda value, rng: plain(value),
    "trailing zeros": lambda value, rng: plain(value) + ("" if "." in plain(value) else ".") + "0" * rng.randint(1, 4),
    "a plus sign": lambda value, rng: f"+{plain(value)}" if value > 0 else plain(value),
    "thousands separators": lambda value, rng: grouped(value),
    "a Unicode minus": lambda value, rng: plain(value).replace("-", "−"),
    "spaces around": lambda value, rng: f" {plain(value)}\n",
    "a fraction": lambda value, rng: _fraction(value, rng.randint(1, 9)),
    "scientific notation": lambda value, rng: _scientific(value, rng.randint(-3, 3)),
}
"""Class → another notation of a number."""


def _fraction(value: Fraction, factor: int) -> str:
    return f"{value.numerator * factor}/{value.denominator * factor}"


def _scientific(value: Fraction, exponent: int) -> str:
    return f"{plain(value / Fraction(10) ** exponent)}e{exponent}"


def _other_digit(value: Fraction, rng: random.Random) -> str:
    text = plain(value)
    index = rng.choice([i for i, character in enumerate(text) if character.isdigit()])
    return text[:index] + str((int(text[index]) + rng.randint(1, 9)) % 10) + text[index + 1 :]


def _swapped(value: Fraction, rng: random.Random) -> str:
    text = plain(value)
    index = rng.randrange(len(text) - 1) if len(text) > 1 else 0
    return text[:index] + text[index : index + 2][::-1] + text[index + 2 :]


NEAR_MISSES: dict[str, Callable[[Fraction, random.Random], str]] = {
    "off by one": lambda value, rng: plain(value + rng.choice([-1, 1])),
    "off by the last digit": lambda value, rng: plain(value + Fraction(rng.choice([-1, 1]), 10 ** _places(value))),
    "the opposite": lambda value, rng: plain(-value),
    "another digit": _other_digit,
    "transposed digits": _swapped,
    "times ten": lambda value, rng: plain(value * Fraction(10) ** rng.choice([-1, 1])),
    "a digit missing": lambda value, rng: plain(value)[:-1],
    "a digit more": lambda value, rng: f"{plain(value)}{rng.randint(1, 9)}",
    "a tiny difference": lambda value, rng: plain(value + Fraction(rng.choice([-1, 1]), 10 ** rng.randint(12, 40))),
    "two answers": lambda value, rng: f"{plain(value)} or {plain(value + 1)}",
    "an interval": lambda value, rng: f"{plain(value - 1)} to {plain(value + 1)}",
    "a percent sign": lambda value, rng: f"{plain(value)}%",
    "nothing but a sign": lambda value, rng: rng.choice(["-", "+", ".", ",", "e", "e5", "/", "nan", "inf", "-inf"]),
}
"""Class → a text that is another number, or none."""


def _places(value: Fraction) -> int:
    return len(plain(value).partition(".")[2])


def _right(notation: Callable[[Fraction, random.Random], str]) -> Generator:
    def generate(rng: random.Random, size: int) -> Case | None:
        value = decimal(rng, size)
        return Case({"answer": plain(value)}, notation(value, rng), True)

    return generate


def _wrong(near_miss: Callable[[Fraction, random.Random], str]) -> Generator:
    def generate(rng: random.Random, size: int) -> Case | None:
        value = decimal(rng, size)
        answer = near_miss(value, rng)
        return None if _value(answer) == value else Case({"answer": plain(value)}, answer, False)

    return generate


def _value(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except ValueError:
        return None


FAMILY = Family(
    {
        **{f"notation: {name}": _right(notation) for name, notation in NOTATIONS.items()},
        **{f"near miss: {name}": _wrong(near_miss) for name, near_miss in NEAR_MISSES.items()},
    },
    form="<answer>{answer}</answer>",
)
"""Cases for rewards that compare numbers in an answer tag."""
