"""Rational functions, identities of functions, and linear forms."""

from __future__ import annotations

import random
from fractions import Fraction

from rlm_audit.mathematics.fractions import latex_fraction
from rlm_audit.mathematics.subject import Subject, Writer


def _draw_quotient(rng: random.Random, size: int) -> tuple[int, int, int, int]:
    """Return (a, b, p, q) for a/(x − p) + b/(x − q)."""
    first, second = sorted(rng.sample(range(1, 5 + 3 * size), 2))
    return rng.randint(1, 9 * size), rng.randint(1, 9 * size), first, second


def _numerator(value: tuple[int, int, int, int]) -> str:
    a, b, p, q = value
    return f"{a + b}x{-(a * q + b * p):+d}"


PARTIAL_FRACTIONS = Subject(
    draw=_draw_quotient,
    write=lambda v, rng: f"\\frac{{{_numerator(v)}}}{{(x-{v[2]})(x-{v[3]})}}",
    notations={
        "partial fractions": lambda v, rng: f"\\frac{{{v[0]}}}{{x-{v[2]}}}+\\frac{{{v[1]}}}{{x-{v[3]}}}",
        "negative denominators": lambda v, rng: f"-\\frac{{{v[0]}}}{{{v[2]}-x}}-\\frac{{{v[1]}}}{{{v[3]}-x}}",
        "an expanded denominator": lambda v, rng: f"\\frac{{{_numerator(v)}}}{{x^2-{v[2] + v[3]}x+{v[2] * v[3]}}}",
    },
    near_misses={
        "exchanged numerators": lambda v, rng: (v[1], v[0], v[2], v[3]),
        "a numerator": lambda v, rng: (v[0] + 1, *v[1:]),
        "a pole": lambda v, rng: (*v[:3], v[3] + 1),
    },
)

IDENTITIES = [
    ("\\sin(2 \\cdot <k>x)", "2\\sin(<k>x)\\cos(<k>x)", "\\sin(<k>x)\\cos(<k>x)"),
    ("\\cos(2 \\cdot <k>x)", "1-2\\sin^2(<k>x)", "1-\\sin^2(<k>x)"),
    ("\\tan^2(<k>x)+1", "\\sec^2(<k>x)", "\\sec(<k>x)"),
    ("\\sin^2(<k>x)+\\cos^2(<k>x)", "1", "<k>+1"),
    ("e^{<k>x}", "(e^x)^<k>", "e^{x^<k>}+1"),
    ("\\ln(x^<k>)+\\ln 2", "\\ln(2x^<k>)", "\\ln(x^<k>+2)"),
    ("|<k>x|", "\\sqrt{<k>^2x^2}", "<k>x"),
    ("x^{<k>/3}", "\\sqrt[3]{x^<k>}", "x^{<k>}+1"),
    ("\\frac{x^<k>-1}{x-1}", "\\frac{1-x^<k>}{1-x}", "\\frac{x^<k>+1}{x-1}"),
    ("2^{n+<k>}", "2^<k> \\cdot 2^n", "2^{n<k>}"),
    ("(-1)^{n+<k>}", "(-1)^n(-1)^<k>", "(-1)^{n+<k>+1}"),
    ("\\frac{n(n+<k>)}{2}", "\\frac{n^2+<k>n}{2}", "\\frac{n^2+<k>}{2}"),
    ("n!", "n(n-1)!", "<k>n!+1"),
    ("<k>xy+x^2", "x(x+<k>y)", "x(y+<k>x)"),
    ("(a+b)^2-<k>ab", "a^2+b^2+(2-<k>)ab", "a^2+b^2+<k>ab+1"),
    ("\\cosh(<k>x)", "\\frac{e^{<k>x}+e^{-<k>x}}{2}", "\\frac{e^{<k>x}-e^{-<k>x}}{2}"),
]
"""(expression, an equal one, a different one), each with a number k."""


def _identity(index: int) -> Writer:
    return lambda v, rng: IDENTITIES[v[0]][index].replace("<k>", str(v[1]))


FUNCTIONS = Subject(
    draw=lambda rng, size: (rng.randrange(len(IDENTITIES)), rng.randint(2, 8)),
    write=_identity(0),
    notations={"by an identity": _identity(1), "plus zero": lambda v, rng: f"{_identity(0)(v, rng)}+x-x"},
    wrong_texts={
        "a false identity": _identity(2),
        "the opposite": lambda v, rng: f"-({_identity(1)(v, rng)})",
        "one more": lambda v, rng: f"{_identity(1)(v, rng)}+1",
        "a tiny difference": lambda v, rng: f"{_identity(1)(v, rng)}+10^{{-{rng.randint(10, 300)}}}",
    },
)

HALVES = Subject(
    draw=lambda rng, size: (Fraction(rng.randint(1, 9 * size), 2), rng.randint(1, 9 * size)),
    write=lambda v, rng: f"{latex_fraction(v[0])}x+{v[1]}y",
    notations={
        "decimals": lambda v, rng: f"{float(v[0])}x+{v[1]}.0y",
        "the other order": lambda v, rng: f"{v[1]}y+\\frac{{{2 * v[0]}x}}{{2}}",
    },
    near_misses={"exchanged": lambda v, rng: (Fraction(v[1]), v[0]), "a coefficient": lambda v, rng: (v[0] + 1, v[1])},
)
