"""Angles, rates, compound quantities, lists with units, repeating and rounded decimals, sums, functions by cases."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from rlm_audit.mathematics.fractions import latex_fraction
from rlm_audit.mathematics.subject import Subject


def _in_radians(degrees: int) -> str:
    share = Fraction(degrees, 180)
    return f"\\frac{{{share.numerator}\\pi}}{{{share.denominator}}}"


DEGREES = Subject(
    draw=lambda rng, size: rng.choice([k for k in range(-360, 361) if k]),
    write=lambda v, rng: f"{v}^\\circ",
    notations={
        "radians": lambda v, rng: _in_radians(v),
        "radians with their name": lambda v, rng: f"{_in_radians(v)}\\text{{ radians}}",
        "without the sign": lambda v, rng: str(v),
        "words": lambda v, rng: f"{v}\\text{{ degrees}}",
        "the letter o": lambda v, rng: f"{v}^{{\\text{{o}}}}",
        "minutes": lambda v, rng: f"{v - 1}^\\circ 60'" if v > 1 else None,
    },
    near_misses={"one more": lambda v, rng: v + 1, "the opposite": lambda v, rng: -v, "a turn": lambda v, rng: v + 360},
    wrong_texts={
        "a decimal of radians": lambda v, rng: f"{v * 3.14159265 / 180:.4f}",
        "radians as a name": lambda v, rng: f"{v}\\text{{ radians}}",
        "a fraction without π": lambda v, rng: latex_fraction(Fraction(v, 180)) if v != 180 else None,
    },
)

DECADES = Subject(
    draw=lambda rng, size: rng.randint(1, 9 * size),
    write=lambda v, rng: str(v),
    notations={"years": lambda v, rng: f"{v}\\text{{ {'year' if v == 1 else 'years'}}}"},
    near_misses={"one more": lambda v, rng: v + 1},
    wrong_texts={
        "a multiple of another unit": lambda v, rng: (
            f"{v}\\text{{ {rng.choice(['decades', 'centuries', 'millennia', 'fortnights', 'decade', 'century'])}}}"
        )
    },
    is_spelled=False,
)
YEARS = Subject(
    draw=lambda rng, size: rng.randint(1, 9 * size),
    write=lambda v, rng: f"{100 * v}\\text{{ years}}",
    notations={
        "decades": lambda v, rng: f"{10 * v}\\text{{ decades}}",
        "centuries": lambda v, rng: f"{v}\\text{{ {'century' if v == 1 else 'centuries'}}}",
        "months": lambda v, rng: f"{1200 * v}\\text{{ months}}",
    },
    near_misses={"one more": lambda v, rng: v + 1},
    wrong_texts={"another unit": lambda v, rng: f"{v}\\text{{ decades}}"},
    is_spelled=False,
)

MIXED_TIMES = Subject(
    draw=lambda rng, size: Fraction(rng.randint(1, 2 * 10**size), 2),
    write=lambda v, rng: f"{float(v)}\\text{{ minutes}}",
    notations={
        "a fraction": lambda v, rng: f"{latex_fraction(v)}\\text{{ minutes}}",
        "another unit": lambda v, rng: f"{latex_fraction(v / 60)}\\text{{ hours}}",
    },
    near_misses={"one more": lambda v, rng: v + 1},
    wrong_texts={
        "a fraction of another unit": lambda v, rng: f"{latex_fraction(v)}\\text{{ {rng.choice(['hours', 'seconds'])}}}"
    },
    is_spelled=False,
)

RATES = Subject(
    draw=lambda rng, size: 18 * rng.randint(1, 10 ** min(size, 4)),
    write=lambda v, rng: f"{v}\\text{{ km/h}}",
    notations={
        "per": lambda v, rng: f"{v}\\text{{ km per hour}}",
        "long names": lambda v, rng: f"{v}\\text{{ kilometers per hour}}",
        "metres a second": lambda v, rng: f"{v * 5 // 18}\\text{{ m/s}}",
        "powers": lambda v, rng: f"{v}\\text{{ km}}/\\text{{h}}",
        "a negative power": lambda v, rng: f"{v}\\text{{ km h}}^{{-1}}",
    },
    near_misses={"more": lambda v, rng: v + 18, "ten times": lambda v, rng: 10 * v},
    wrong_texts={
        "the other unit": lambda v, rng: f"{v}\\text{{ m/s}}",
        "miles": lambda v, rng: f"{v}\\text{{ mph}}",
        "a length": lambda v, rng: f"{v}\\text{{ km}}",
        "the inverse": lambda v, rng: f"{v}\\text{{ h/km}}",
        "a square": lambda v, rng: f"{v}\\text{{ km h}}^{{-2}}",
    },
)

DURATIONS = Subject(
    draw=lambda rng, size: (rng.randint(1, 3 * size), rng.randint(1, 59)),
    write=lambda v, rng: f"{v[0]}\\text{{ hours }}{v[1]}\\text{{ minutes}}",
    notations={
        "minutes": lambda v, rng: f"{60 * v[0] + v[1]}\\text{{ minutes}}",
        "one text": lambda v, rng: f"\\text{{{v[0]} hours and {v[1]} minutes}}",
        "no command": lambda v, rng: f"{v[0]} hours {v[1]} minutes",
        "a fraction of hours": lambda v, rng: f"{latex_fraction(v[0] + Fraction(v[1], 60))}\\text{{ hours}}",
    },
    near_misses={"a minute": lambda v, rng: (v[0], v[1] + 1) if v[1] < 59 else None},
    wrong_texts={
        "a decimal point": lambda v, rng: f"{v[0]}.{v[1]:02d}\\text{{ hours}}",
        "only the hours": lambda v, rng: f"{v[0]}\\text{{ hours}}",
    },
    is_spelled=False,
)


def _draw_repeating(rng: random.Random, size: int) -> tuple[int, str, str]:
    fixed = "".join(rng.choice("0123456789") for _ in range(rng.randint(0, 2)))
    cycle = "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 1 + size // 2)))
    return rng.randint(0, size), fixed, cycle


def _value(value: tuple[int, str, str]) -> Fraction:
    whole, fixed, cycle = value
    scale = 10 ** len(fixed)
    return whole + Fraction(int(fixed or 0), scale) + Fraction(int(cycle), scale * (10 ** len(cycle) - 1))


REPEATING = Subject(
    draw=_draw_repeating,
    write=lambda v, rng: f"{v[0]}.{v[1]}\\overline{{{v[2]}}}",
    notations={
        "a fraction": lambda v, rng: latex_fraction(_value(v)),
        "dots after three cycles": lambda v, rng: f"{v[0]}.{v[1]}{v[2] * 3}\\ldots",
        "points above": lambda v, rng: (
            f"{v[0]}.{v[1]}\\dot{{{v[2][0]}}}" + (f"{v[2][1:-1]}\\dot{{{v[2][-1]}}}" * (len(v[2]) > 1))
        ),
        "a bar": lambda v, rng: f"{v[0]}.{v[1]}\\bar{{{v[2]}}}",
    },
    wrong_texts={
        "cut off": lambda v, rng: (
            f"{v[0]}.{v[1]}{v[2]}" if int(v[2]) and _value(v) != _value((v[0], v[1] + v[2], "0")) else None
        ),
        "one more": lambda v, rng: latex_fraction(_value(v) + 1),
        "a digit changed": lambda v, rng: f"{v[0]}.{v[1]}{v[2] * 3}{v[2][:-1]}{(int(v[2][-1]) + 5) % 10}\\ldots",
    },
    is_spelled=False,
)

SUMS = Subject(
    draw=lambda rng, size: (rng.randint(1, 3), rng.randint(-5, 5), rng.randint(2, 4 * size + 2)),
    write=lambda v, rng: f"\\sum_{{k=1}}^{{{v[2]}}} ({v[0]}k{v[1]:+d})",
    notations={
        "the value": lambda v, rng: str(v[0] * v[2] * (v[2] + 1) // 2 + v[1] * v[2]),
        "another index": lambda v, rng: f"\\sum_{{j=0}}^{{{v[2] - 1}}} ({v[0]}j{v[0] + v[1]:+d})",
    },
    near_misses={"a term more": lambda v, rng: (v[0], v[1], v[2] + 1) if v[0] * (v[2] + 1) + v[1] else None},
    wrong_texts={"one more": lambda v, rng: str(v[0] * v[2] * (v[2] + 1) // 2 + v[1] * v[2] + 1)},
    is_spelled=False,
)


def _cases(value: tuple[int, int, int], order: int = 1, sign: str = "\\geq") -> str:
    low, high, at = value
    rows = [f"{low}x & x < {at}", f"x+{high} & x {sign} {at}"][::order]
    return "\\begin{cases} " + " \\\\ ".join(rows) + " \\end{cases}"


PIECEWISE = Subject(
    draw=lambda rng, size: (rng.randint(2, 9 * size), rng.randint(1, 9 * size), rng.randint(-size, size)),
    write=lambda v, rng: _cases(v),
    notations={
        "the other order": lambda v, rng: _cases(v, -1),
        "with if": lambda v, rng: _cases(v).replace("& x", ", & \\text{if } x"),
        "otherwise": lambda v, rng: _cases(v).replace(f"x \\geq {v[2]}", "\\text{otherwise}"),
    },
    near_misses={
        "a factor": lambda v, rng: (v[0] + 1, *v[1:]),
        "the border": lambda v, rng: (*v[:2], v[2] + 1),
    },
    wrong_texts={
        "an open border": lambda v, rng: _cases(v, 1, ">"),
        "otherwise at the wrong case": lambda v, rng: (
            _cases(v, -1).replace(f"x < {v[2]}", "\\text{otherwise}").replace("\\geq", ">")
        ),
        "one case": lambda v, rng: f"{v[0]}x",
    },
    is_spelled=False,
)

LENGTH_LISTS = Subject(
    draw=lambda rng, size: (rng.randint(1, 9 * size), rng.randint(9 * size + 1, 10 ** (size + 1))),
    write=lambda v, rng: f"{v[0]}\\text{{ cm}}, {v[1]}\\text{{ cm}}",
    notations={
        "and": lambda v, rng: f"{v[1]}\\text{{ cm and }}{v[0]}\\text{{ cm}}",
        "without the unit": lambda v, rng: f"{v[0]}, {v[1]}",
    },
    near_misses={"one more": lambda v, rng: (v[0], v[1] + 1)},
    wrong_texts={
        "another unit": lambda v, rng: f"{v[0]}\\text{{ m}}, {v[1]}\\text{{ m}}",
        "two units": lambda v, rng: f"{v[0]}\\text{{ cm}}, {v[1]}\\text{{ m}}",
        "one of them": lambda v, rng: f"{v[1]}\\text{{ cm}}",
        "digits together": lambda v, rng: f"{v[0]}{v[1]}\\text{{ cm}}",
    },
    is_spelled=False,
)


def _rounded(value: int, places: int = 3) -> str:
    return f"{math.sqrt(value):.{places}f}"


APPROXIMATED = Subject(
    draw=lambda rng, size: rng.choice([k for k in range(2, 60 * size) if math.isqrt(k) ** 2 != k]),
    write=lambda v, rng: f"\\sqrt{{{v}}}",
    notations={
        "with its decimals": lambda v, rng: f"\\sqrt{{{v}}} \\approx {_rounded(v, rng.randint(1, 5))}",
        "with a name": lambda v, rng: f"x = \\sqrt{{{v}}} \\approx {_rounded(v)}",
    },
    near_misses={"one more": lambda v, rng: v + 1 if math.isqrt(v + 1) ** 2 != v + 1 else None},
    wrong_texts={
        "only decimals": lambda v, rng: _rounded(v),
        "the decimals first": lambda v, rng: f"{_rounded(v)} \\approx \\sqrt{{{v}}}",
        "other decimals": lambda v, rng: f"\\sqrt{{{v}}} \\approx {_rounded(v + 1)}",
        "the decimals of another number": lambda v, rng: f"\\sqrt{{{v + 1}}} \\approx {_rounded(v)}",
        "another number": lambda v, rng: f"\\sqrt{{{v}}} \\approx \\sqrt{{{v + 1}}}",
    },
    is_spelled=False,
)
