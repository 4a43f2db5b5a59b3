"""Integers, and the ways of being no single integer."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

from rlm_audit.mathematics.subject import Subject

SIGNS = (-1, 1)


def signed(number: int | Fraction) -> str:
    """Return a number with its sign, as a further term."""
    return f"+{number}" if number >= 0 else f"{number}"


def _draw_integer(rng: random.Random, size: int) -> int:
    return rng.choice(SIGNS) * rng.randint(1, 10 ** (2 * size))


def _nested(value: int, rng: random.Random) -> str:
    depth = rng.randint(1, 40)
    return "(" * depth + str(value) + ")" * depth


def _sum(value: int, rng: random.Random) -> str:
    part = rng.randint(-(10**6), 10**6)
    return f"{part}{signed(value - part)}"


def _product(value: int, rng: random.Random) -> str | None:
    divisors = [d for d in range(2, 100) if value % d == 0]
    if not divisors:
        return None
    divisor = rng.choice(divisors)
    return f"{divisor} \\cdot {value // divisor}" if value > 0 else f"-{divisor} \\cdot {-value // divisor}"


def _broken(value: int, rng: random.Random) -> str | None:
    """Return the digits with a break that separates no thousands."""
    text, last = str(value), rng.choice([1, 2])
    if abs(value) < 10**last:
        return None
    breaks = ["\\,", "\\;", "\\:", "\\ ", "~", " ", "$ $", "$", "_", "^", "\\cdot ", "\u200b", "\\color{red} "]
    return f"{text[:-last]}{rng.choice(breaks)}{text[-last:]}"


def _raised_or_lowered(value: int, rng: random.Random) -> str | None:
    """Return the digits with the last one in a Unicode form that means another number."""
    zeros = "⁰₀"
    digits = {zero: [chr(ord(zero) + n) for n in range(10)] for zero in zeros}
    digits["⁰"][1:4] = "¹²³"
    text = str(value)
    return text[:-1] + digits[rng.choice(zeros)][int(text[-1])] if abs(value) >= 10 else None


def _digits(change: str) -> Callable[[int, random.Random], int | None]:
    def changed(value: int, rng: random.Random) -> int | None:
        text = str(abs(value))
        index = rng.randrange(len(text))
        if change == "swap":
            if index + 1 == len(text):
                return None
            text = text[:index] + text[index + 1] + text[index] + text[index + 2 :]
        elif change == "drop":
            text = text[:index] + text[index + 1 :]
        elif change == "repeat":
            text = text[:index] + text[index] + text[index:]
        else:
            text = text[:index] + rng.choice("0123456789") + text[index + 1 :]
        return int(text or "0") * (1 if value > 0 else -1)

    return changed


def _misplaced(value: int, rng: random.Random) -> str | None:
    """Return the digits with a separator after more than three of them, or after zeros."""
    text = f"{abs(value):,}"
    if "," not in text:
        return None
    first, rest = text.split(",", 1)
    return f"{first}{rest[:3]},{rest[4:]}" if len(rest) > 3 else f"000{first},{rest}"


_WORDS_AFTER = (
    "score gross lakh crore tenths fifths permille squared doubled inverse negative five unless except versus "
    "through until minimum guess probably nearly possibly instead otherwise almost none zero"
)
NEAR_INTEGERS = {
    "one more or less": lambda value, rng: value + rng.choice(SIGNS),
    "the sign": lambda value, rng: -value,
    "a digit": _digits("other"),
    "transposed digits": _digits("swap"),
    "a missing digit": _digits("drop"),
    "a repeated digit": _digits("repeat"),
    "times ten": lambda value, rng: value * 10,
}

INTEGERS = Subject(
    draw=_draw_integer,
    write=lambda value, rng: str(value),
    notations={
        "thousands separators": lambda value, rng: f"{value:,}",
        "LaTeX separators": lambda value, rng: f"{value:,}".replace(",", rng.choice(["{,}", "\\,"])),
        "trailing zeros": lambda value, rng: f"{value}.{'0' * rng.randint(1, 3)}",
        "a sum": _sum,
        "a product": _product,
        "a quotient": lambda value, rng: f"\\frac{{{7 * value}}}{{7}}",
        "nested brackets": _nested,
        "a name": lambda value, rng: f"{rng.choice('xynkmt')} = {value}",
        "an equals sign": lambda value, rng: f"= {value}",
        "text around": lambda value, rng: f"{value}\\text{{ {rng.choice(['apples', 'ways', 'points'])}}}",
        "nested boxes": lambda value, rng: f"\\boxed{{{value}}}",
        "a cube root in Unicode": lambda value, rng: f"∛{value**3}" if value > 0 else None,
        "the root of its square": lambda value, rng: f"\\sqrt{{{value * value}}}" if value > 0 else None,
    },
    near_misses=NEAR_INTEGERS,
    wrong_texts={
        "a second answer": lambda value, rng: f"{value}{rng.choice([', ', ' or ', ';', '; ', ' / '])}{value + 1}",
        "a second answer in text": lambda value, rng: f"{value} \\text{{ or }} {value + 1}",
        "plus or minus": lambda value, rng: f"\\pm {abs(value)}",
        "a bound": lambda value, rng: rng.choice(["<", ">", "x \\leq ", "x > ", "\\approx ", "\\neq "]) + str(value),
        "a false equation": lambda value, rng: f"{value + 1} = {value}",
        "a false chain": lambda value, rng: f"x = {value + rng.choice(SIGNS)} = {value}",
        "a residue": lambda value, rng: f"{value} \\pmod{{{abs(value) + 2}}}",
        "another base": lambda value, rng: f"{value}_{{{rng.randint(2, 9)}}}" if abs(value) > 1 else None,
        "a larger unit": lambda value, rng: f"{value}\\text{{ {rng.choice(['million', 'thousand', 'dozen'])}}}",
        "a word that is no unit": lambda value, rng: f"{value}\\text{{ {rng.choice(_WORDS_AFTER.split())}}}",
        "a misplaced separator": _misplaced,
        "struck out": lambda value, rng: f"~~{value}~~",
        "a zero before the separator": lambda value, rng: f"0,{value}" if 100 <= value < 1000 else None,
        "a break between digits": _broken,
        "a Unicode exponent or subscript": _raised_or_lowered,
        "two numbers": lambda value, rng: f"{value} {rng.randint(0, 9)}",
        "hidden text": lambda value, rng: f"\\phantom{{{value + 1}}}{value}",
        "text in white": lambda value, rng: f"\\color{{white}}{{{value}}}",
        "an interval": lambda value, rng: f"[{value}, {value}]",
        "a pair": lambda value, rng: f"({value}, {value})",
        "dots": lambda value, rng: f"{value}\\ldots",
        "an exponent that ends early": lambda value, rng: f"{value}^{{1}}0",
    },
)
