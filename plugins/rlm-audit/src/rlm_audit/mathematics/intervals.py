"""Intervals and domains: what an inequality, a condition or a difference of sets can say."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

from rlm_audit.mathematics.fractions import latex_fraction
from rlm_audit.mathematics.sets import braces, draw_number, in_some_order
from rlm_audit.mathematics.subject import Subject

Interval = tuple[Fraction | None, bool, Fraction | None, bool]
"""Low end or None for −∞, whether it is contained, high end or None for ∞, whether it is contained."""


def _interval(rng: random.Random, size: int) -> Interval:
    low = draw_number(rng, size)
    high = low + rng.randint(1, 9 * size)
    kind = rng.randrange(4)
    if kind == 0:
        return None, False, high, rng.random() < 0.5
    if kind == 1:
        return low, rng.random() < 0.5, None, False
    return low, rng.random() < 0.5, high, rng.random() < 0.5


def _brackets(value: Interval, rng: random.Random) -> str:
    low, has_low, high, has_high = value
    ends = ["-\\infty" if low is None else latex_fraction(low), "\\infty" if high is None else latex_fraction(high)]
    return f"{'[' if has_low else '('}{ends[0]}, {ends[1]}{']' if has_high else ')'}"


def _inequality(value: Interval, rng: random.Random) -> str:
    low, has_low, high, has_high = value
    signs = ["\\leq" if has_low else "<", "\\le" if has_high else "<"]
    left = "" if low is None else f"{latex_fraction(low)} {signs[0]} "
    right = "" if high is None else f" {signs[1]} {latex_fraction(high)}"
    return f"{left}x{right}"


def _turned(value: Interval, rng: random.Random) -> str:
    low, has_low, high, has_high = value
    signs = ["\\geq" if has_high else ">", "\\ge" if has_low else ">"]
    left = "" if high is None else f"{latex_fraction(high)} {signs[0]} "
    right = "" if low is None else f" {signs[1]} {latex_fraction(low)}"
    return f"{left}x{right}"


def _cut(value: Interval, rng: random.Random) -> str:
    low, has_low, high, has_high = value
    if low is not None and high is not None:
        middle = (low + high) / 2
    else:
        middle = high - 1 if high is not None else (low or Fraction(0)) + 1
    closed = rng.random() < 0.5
    below, above = (low, has_low, middle, closed), (middle, not closed, high, has_high)
    return f"{_brackets(below, rng)} \\cup {_brackets(above, rng)}"


def _with_infinity(value: Interval, rng: random.Random) -> str | None:
    low, has_low, high, has_high = value
    ends = (low, has_low or low is None, high, has_high or high is None)
    return _brackets(ends, rng) if None in (low, high) else None


def _with_gap(value: Interval, rng: random.Random) -> str | None:
    low, has_low, high, has_high = value
    if low is None or high is None:
        return None
    gap = high - Fraction(1, 3)
    return f"{_brackets((low, has_low, gap, False), rng)} \\cup {_brackets((gap, False, high, has_high), rng)}"


def _move(value: Interval, rng: random.Random) -> Interval:
    low, has_low, high, has_high = value
    if low is not None and (high is None or rng.random() < 0.5):
        return low - 1, has_low, high, has_high
    return low, has_low, (high or Fraction(0)) + 1, has_high


INTERVALS = Subject(
    draw=_interval,
    write=_brackets,
    notations={
        "an inequality": _inequality,
        "an inequality from above": _turned,
        "a membership": lambda v, rng: f"x \\in {_brackets(v, rng)}",
        "a condition": lambda v, rng: f"\\{{x \\mid {_inequality(v, rng)}\\}}",
        "a condition on real numbers": lambda v, rng: f"\\{{x \\in \\mathbb{{R}} : {_inequality(v, rng)}\\}}",
        "cut in two": _cut,
        "an intersection": lambda v, rng: f"{_brackets(v, rng)} \\cap \\mathbb{{R}}",
    },
    near_misses={
        "the low end is (not) contained": lambda v, rng: None if v[0] is None else (v[0], not v[1], v[2], v[3]),
        "the high end is (not) contained": lambda v, rng: None if v[2] is None else (v[0], v[1], v[2], not v[3]),
        "an end": _move,
        "no lower bound": lambda v, rng: (None, False, v[2], v[3]) if v[2] is not None else None,
        "no upper bound": lambda v, rng: (v[0], v[1], None, False) if v[0] is not None else None,
        "mirrored": lambda v, rng: (None if v[2] is None else -v[2], v[3], None if v[0] is None else -v[0], v[1]),
    },
    wrong_texts={
        "infinity is contained": _with_infinity,
        "a condition on another variable": lambda v, rng: f"\\{{y \\mid {_inequality(v, rng)}\\}}",
        "the ends exchanged": lambda v, rng: _brackets((v[2], v[1], v[0], v[3]), rng) if None not in v else None,
        "the ends as a set": lambda v, rng: braces(in_some_order(v[::2], rng)) if None not in v else None,
        "a missing middle": _with_gap,
    },
)


def _points(rng: random.Random, size: int) -> tuple[int, ...]:
    return tuple(sorted(rng.sample(range(-4 * size, 4 * size + 1), rng.randint(1, min(3, size + 1)))))


def _gaps(value: tuple[int, ...], rng: random.Random) -> str:
    ends = ["-\\infty", *map(str, value), "\\infty"]
    return " \\cup ".join(f"({a}, {b})" for a, b in itertools.pairwise(ends))


DOMAINS = Subject(
    draw=_points,
    write=_gaps,
    notations={
        "a difference": lambda v, rng: f"\\mathbb{{R}} \\setminus {braces([*map(str, v)])}",
        "conditions": lambda v, rng: ", ".join(f"x \\neq {point}" for point in v),
        "a condition with both signs": lambda v, rng: (
            f"x \\neq \\pm {v[-1]}" if len(v) == 2 and v[0] == -v[1] else None
        ),
        "one condition": lambda v, rng: f"x \\neq {', '.join(map(str, v))}",
        "a set of real numbers": lambda v, rng: f"\\{{x \\in \\mathbb{{R}} \\mid x \\neq {', '.join(map(str, v))}\\}}",
        "intervals in another order": lambda v, rng: " \\cup ".join(reversed(_gaps(v, rng).split(" \\cup "))),
        "inequalities": lambda v, rng: f"x < {v[0]} \\text{{ or }} x > {v[0]}" if len(v) == 1 else None,
    },
    near_misses={
        "a missing point": lambda v, rng: v[1:] or None,
        "a further point": lambda v, rng: (*v, v[-1] + 1),
        "another point": lambda v, rng: (*v[:-1], v[-1] + 1),
        "the sign": lambda v, rng: tuple(sorted(-x for x in v)),
    },
    wrong_texts={
        "a contained point": lambda v, rng: _gaps(v, rng).replace(f"{v[0]})", f"{v[0]}]", 1),
        "all real numbers": lambda v, rng: "\\mathbb{R}",
        "the excluded points": lambda v, rng: braces([*map(str, v)]),
        "an equation": lambda v, rng: f"x = {v[0]}",
        "a complex number": lambda v, rng: f"{_gaps(v, rng)} \\cup \\{{i\\}}",
    },
)
