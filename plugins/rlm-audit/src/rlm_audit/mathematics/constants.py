"""Multiples of π, sines of angles, and logarithms."""

from __future__ import annotations

import math
from fractions import Fraction

from rlm_audit.mathematics.fractions import draw_fraction, latex_fraction
from rlm_audit.mathematics.integers import SIGNS
from rlm_audit.mathematics.subject import Subject


def _multiple(value: Fraction, symbol: str) -> str:
    above = symbol if abs(value.numerator) == 1 else f"{abs(value.numerator)}{symbol}"
    body = above if value.denominator == 1 else f"\\frac{{{above}}}{{{value.denominator}}}"
    return f"-{body}" if value < 0 else body


PI = Subject(
    draw=draw_fraction,
    write=lambda v, rng: _multiple(v, "\\pi"),
    notations={
        "the fraction first": lambda v, rng: f"{latex_fraction(v)}\\pi",
        "a slash": lambda v, rng: f"{v.numerator}\\pi/{v.denominator}",
        "a product": lambda v, rng: f"\\pi \\cdot {latex_fraction(v)}" if v > 0 else None,
        "an arc tangent": lambda v, rng: f"{latex_fraction(4 * v)}\\arctan(1)",
    },
    near_misses={
        "the factor": lambda v, rng: v + Fraction(rng.choice(SIGNS), v.denominator),
        "the sign": lambda v, rng: -v,
        "inverted": lambda v, rng: 1 / v,
    },
    wrong_texts={
        "22/7": lambda v, rng: latex_fraction(v * Fraction(22, 7)),
        "a decimal": lambda v, rng: f"{float(v) * math.pi:.{rng.randint(2, 14)}f}",
        "without π": lambda v, rng: latex_fraction(v),
        "squared": lambda v, rng: f"{latex_fraction(v)}\\pi^2",
    },
)

ANGLES = Subject(
    draw=lambda rng, size: rng.choice([k for k in range(-350, 360, 15) if k % 90]),
    write=lambda v, rng: f"\\sin {v}^\\circ" if v > 0 else f"\\sin({v}^\\circ)",
    notations={
        "the cosine of the complement": lambda v, rng: f"\\cos({90 - v}^\\circ)",
        "radians": lambda v, rng: "\\sin(" + _multiple(Fraction(v, 180), "\\pi") + ")",
        "a double angle": lambda v, rng: "2\\sin(<half>^\\circ)\\cos(<half>^\\circ)".replace("<half>", str(v / 2)),
        "the supplement": lambda v, rng: f"\\sin({180 - v}^\\circ)",
    },
    near_misses={"another angle": lambda v, rng: v + 15 if (2 * v + 15) % 360 != 180 else None},
    wrong_texts={
        "the opposite": lambda v, rng: f"-\\sin({v}^\\circ)",
        "the cosine": lambda v, rng: f"\\cos({v}^\\circ)" if (v - 45) % 180 else None,
        "a decimal": lambda v, rng: f"{math.sin(math.radians(v)):.6f}" if v % 30 else None,
    },
)

LOGARITHMS = Subject(
    draw=lambda rng, size: (rng.randint(2, 9 * size), rng.randint(2, 9 * size)),
    write=lambda v, rng: f"\\ln {v[0] * v[1]}",
    notations={
        "a sum": lambda v, rng: f"\\ln {v[0]}+\\ln {v[1]}",
        "half of a square": lambda v, rng: f"\\frac{{1}}{{2}}\\ln({(v[0] * v[1]) ** 2})",
        "a quotient": lambda v, rng: f"-\\ln\\frac{{1}}{{{v[0] * v[1]}}}",
        "another base": lambda v, rng: f"\\frac{{\\log_{{7}} {v[0] * v[1]}}}{{\\log_7 e}}",
    },
    near_misses={
        "a factor": lambda v, rng: (v[0] + 1, v[1]),
        "the other factor": lambda v, rng: (v[0], v[1] - 1) if v[1] > 2 else None,
    },
    wrong_texts={
        "the logarithm of the sum": lambda v, rng: f"\\ln {v[0] + v[1]}" if v[0] + v[1] != v[0] * v[1] else None,
        "base ten": lambda v, rng: f"\\log_{{10}} {v[0] * v[1]}",
        "the product of logarithms": lambda v, rng: f"\\ln {v[0]} \\cdot \\ln {v[1]}",
        "a decimal": lambda v, rng: f"{math.log(v[0] * v[1]):.{rng.randint(3, 12)}f}",
    },
)
