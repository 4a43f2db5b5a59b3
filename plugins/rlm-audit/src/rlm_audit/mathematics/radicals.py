"""Sums with a square root, nested roots, and complex numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

from rlm_audit.mathematics.fractions import latex_fraction
from rlm_audit.mathematics.integers import SIGNS, signed
from rlm_audit.mathematics.subject import Subject

SQUAREFREE = [2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17, 19]


def _draw_surd(rng: random.Random, size: int) -> tuple[Fraction, Fraction, int]:
    """Return (a, b, n) for a + b√n."""
    a = Fraction(rng.randint(-3 * size, 3 * size), rng.choice([1, 1, 2, 3]))
    b = Fraction(rng.choice(SIGNS) * rng.randint(1, 3 * size), rng.choice([1, 1, 2, 3]))
    return a, b, rng.choice(SQUAREFREE)


def _times_root(b: Fraction, root: str) -> str:
    sign, b = ("-" if b < 0 else "+"), abs(b)
    above = root if b.numerator == 1 else f"{b.numerator}{root}"
    return sign + (above if b.denominator == 1 else f"\\frac{{{above}}}{{{b.denominator}}}")


def _surd(value: tuple[Fraction, Fraction, int], rng: random.Random) -> str:
    a, b, n = value
    return ((latex_fraction(a) if a else "") + _times_root(b, f"\\sqrt{{{n}}}")).removeprefix("+")


def _surd_under_root(value: tuple[Fraction, Fraction, int], rng: random.Random) -> str:
    a, b, n = value
    square = b * b * n
    return f"{latex_fraction(a)}{'-' if b < 0 else '+'}\\sqrt{{{latex_fraction(square)}}}"


def _common_denominator(value: tuple[Fraction, Fraction, int], rng: random.Random) -> str:
    a, b, n = value
    d = math.lcm(a.denominator, b.denominator) * 2
    root = _times_root(b * d, f"\\sqrt{{{n}}}")
    return f"\\frac{{{a * d}{root}}}{{{d}}}"


def _inverse_surd(value: tuple[Fraction, Fraction, int], rng: random.Random) -> str:
    a, b, n = value
    norm = a * a - b * b * n
    inverse = (a / norm, -b / norm, n)
    return f"\\frac{{1}}{{{_surd(inverse, rng)}}}"


def _root_first(value: tuple[Fraction, Fraction, int], rng: random.Random) -> str | None:
    a, b, n = value
    return (_times_root(b, f"\\sqrt{{{n}}}") + signed(a.numerator)).removeprefix("+") if a.denominator == 1 else None


def _changed(index: int, step: int) -> Callable[[tuple[Fraction, ...], random.Random], tuple[Fraction, ...] | None]:
    def changed(value: tuple[Fraction, ...], rng: random.Random) -> tuple[Fraction, ...] | None:
        parts = list(value)
        parts[index] += step * rng.choice(SIGNS)
        return tuple(parts) if parts[1] else None

    return changed


SURDS = Subject(
    draw=_draw_surd,
    write=_surd,
    notations={
        "everything under the root": _surd_under_root,
        "a common denominator": _common_denominator,
        "the other order": _root_first,
        "a power": lambda v, rng: latex_fraction(v[0]) + _times_root(v[1], f"({v[2]})^{{{rng.choice(['1/2', '.5'])}}}"),
        "the inverse of its inverse": _inverse_surd,
        "the fourth root of a square": lambda v, rng: _surd(v, rng).replace(f"t{{{v[2]}}}", f"t[4]{{{v[2] ** 2}}}"),
        "a Unicode root": lambda v, rng: _surd(v, rng).replace("\\sqrt", "√") if v[2] < 10 else None,
    },
    near_misses={
        "the sign of the root": lambda v, rng: (v[0], -v[1], v[2]),
        "the sign of the rational part": lambda v, rng: (-v[0], v[1], v[2]),
        "another radicand": lambda v, rng: (v[0], v[1], rng.choice(SQUAREFREE)),
        "the rational part": _changed(0, 1),
        "the factor": _changed(1, 1),
        "both parts exchanged": lambda v, rng: (v[1], v[0], v[2]) if v[0] else None,
    },
    wrong_texts={
        "a truncated decimal": lambda v, rng: f"{float(v[0]) + float(v[1]) * math.sqrt(v[2]):.{rng.randint(2, 12)}f}",
        "both signs": lambda v, rng: _surd(v, rng).replace("+", "\\pm", 1) if v[0] and v[1] > 0 else None,
    },
)


def _draw_nested(rng: random.Random, size: int) -> tuple[int, int]:
    a, b = sorted(rng.sample(range(1, 6 + 8 * size), 2))
    return a, b


NESTED = Subject(
    draw=lambda rng, size: (lambda pair: pair if math.isqrt(pair[0] * pair[1]) ** 2 != pair[0] * pair[1] else (2, 3))(
        _draw_nested(rng, size)
    ),
    write=lambda v, rng: f"\\sqrt{{{v[0]}}}+\\sqrt{{{v[1]}}}",
    notations={
        "nested roots": lambda v, rng: f"\\sqrt{{{v[0] + v[1]}+2\\sqrt{{{v[0] * v[1]}}}}}",
        "a difference of squares": lambda v, rng: f"\\frac{{{v[1] - v[0]}}}{{\\sqrt{{{v[1]}}}-\\sqrt{{{v[0]}}}}}",
    },
    near_misses={
        "a radicand": lambda v, rng: (v[0], v[1] + 1),
        "both radicands": lambda v, rng: (v[0] + 1, v[1] - 1) if v[1] - v[0] > 2 else None,
    },
    wrong_texts={"the root of the sum": lambda v, rng: f"\\sqrt{{{v[0] + v[1]}}}"},
)

Complex = tuple[int, int]


def _complex(value: Complex, rng: random.Random) -> str:
    a, b = value
    imaginary = {1: "+i", -1: "-i"}.get(b, f"{b:+d}i")
    return (f"{a}" if a else "") + (imaginary if a else imaginary.removeprefix("+"))


def _gauss_product(value: Complex, rng: random.Random) -> str:
    """Return the product of the number over a unit or 1 + i, where that is a Gaussian integer."""
    a, b = value
    if (a + b) % 2 == 0:
        return f"(1+i)({_complex(((a + b) // 2, (b - a) // 2), rng) if b != a else (a + b) // 2})"
    return f"i({_complex((b, -a), rng) if a else b})"


def _gauss_quotient(value: Complex, rng: random.Random) -> str | None:
    a, b = value
    return f"\\frac{{{_complex((a + b, b - a), rng)}}}{{1-i}}" if a != b else None


COMPLEX = Subject(
    draw=lambda rng, size: (rng.randint(-9 * size, 9 * size), rng.choice(SIGNS) * rng.randint(1, 9 * size)),
    write=_complex,
    notations={
        "the other order": lambda v, rng: f"{v[1]}i{v[0]:+d}",
        "a product": _gauss_product,
        "a quotient": _gauss_quotient,
        "a power of i": lambda v, rng: f"{v[0]}{v[1]:+d} \\cdot i^{{{4 * rng.randint(1, 500) + 1}}}",
        "the root of a negative number": lambda v, rng: f"{v[0]}{'-' if v[1] < 0 else '+'}\\sqrt{{-{v[1] ** 2}}}",
        "i last": lambda v, rng: f"{v[0]}{v[1]:+d} \\cdot i",
    },
    near_misses={
        "the conjugate": lambda v, rng: (v[0], -v[1]),
        "exchanged parts": lambda v, rng: (v[1], v[0]) if v[0] else None,
        "the real part": lambda v, rng: (v[0] + rng.choice(SIGNS), v[1]),
        "the imaginary part": lambda v, rng: (v[0], v[1] + rng.choice(SIGNS)) if abs(v[1]) > 1 else None,
        "the opposite": lambda v, rng: (-v[0], -v[1]),
    },
    wrong_texts={
        "its modulus": lambda v, rng: f"\\sqrt{{{v[0] ** 2 + v[1] ** 2}}}",
        "a pair": lambda v, rng: f"({v[0]}, {v[1]})",
        "another letter": lambda v, rng: f"{v[0]}{v[1]:+d}j",
        "a unit vector": lambda v, rng: f"{v[0]}{v[1]:+d}\\{rng.choice(['hat', 'vec', 'mathbf'])}{{i}}",
    },
)
