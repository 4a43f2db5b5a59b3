"""Equations of lines and circles, and points with names."""

from __future__ import annotations

import random

from rlm_audit.mathematics.integers import SIGNS
from rlm_audit.mathematics.polynomials import joined, term
from rlm_audit.mathematics.subject import Subject

Line = tuple[int, int]


def _line(value: Line, rng: random.Random) -> str:
    return f"y = {joined([term(value[0], 1), *([term(value[1], 0)] if value[1] else [])])}"


LINES = Subject(
    draw=lambda rng, size: (rng.choice(SIGNS) * rng.randint(1, 4 * size), rng.randint(-9 * size, 9 * size)),
    write=_line,
    notations={
        "everything on one side": lambda v, rng: f"{term(v[0], 1).removeprefix('+')}-y{v[1]:+d}=0",
        "a multiple": lambda v, rng: f"3y = {3 * v[0]}x{3 * v[1]:+d}",
        "the sides exchanged": lambda v, rng: f"{v[0]}x{v[1]:+d} = y",
        "x alone": lambda v, rng: f"x = \\frac{{y{-v[1]:+d}}}{{{v[0]}}}",
        "the right side alone": lambda v, rng: f"{v[0]}x{v[1]:+d}",
    },
    near_misses={
        "the slope": lambda v, rng: (v[0] + 1, v[1]) if v[0] != -1 else None,
        "the sign of the slope": lambda v, rng: (-v[0], v[1]),
        "the intercept": lambda v, rng: (v[0], v[1] + rng.choice(SIGNS)),
    },
    wrong_texts={
        "an inequality": lambda v, rng: _line(v, rng).replace("=", rng.choice(["<", "\\leq", "\\neq"])),
        "squared": lambda v, rng: f"y^2 = ({v[0]}x{v[1]:+d})^2",
        "times x": lambda v, rng: f"xy = {v[0]}x^2{v[1]:+d}x",
    },
)

CIRCLES = Subject(
    draw=lambda rng, size: (rng.randint(-9, 9), rng.randint(-3 * size, 3 * size), rng.randint(1, 5 * size)),
    write=lambda v, rng: f"(x{-v[0]:+d})^2+(y{-v[1]:+d})^2={v[2] ** 2}",
    notations={
        "expanded": lambda v, rng: f"x^2+y^2{-2 * v[0]:+d}x{-2 * v[1]:+d}y{v[0] ** 2 + v[1] ** 2 - v[2] ** 2:+d}=0",
        "y first": lambda v, rng: f"(y{-v[1]:+d})^2 = {v[2] ** 2}-(x{-v[0]:+d})^2",
    },
    near_misses={
        "the center": lambda v, rng: (v[0] + 1, v[1], v[2]),
        "the sign of the center": lambda v, rng: (-v[0], v[1], v[2]),
        "exchanged coordinates": lambda v, rng: (v[1], v[0], v[2]),
        "the radius": lambda v, rng: (v[0], v[1], v[2] + 1),
    },
    wrong_texts={
        "the radius not squared": lambda v, rng: f"(x{-v[0]:+d})^2+(y{-v[1]:+d})^2={v[2]}" if v[2] > 1 else None,
    },
)

Points = tuple[int, int, int, int]


def _points(value: Points, form: str = "{}({}, {})", names: str = "AB") -> list[str]:
    return [form.format(name, *value[at : at + 2]) for name, at in zip(names, (0, 2), strict=True)]


POINTS = Subject(
    draw=lambda rng, size: (k := rng.randint(-9, 9), rng.randint(-9, 9), k + 1, rng.randint(-9 * size, 9 * size)),
    write=lambda v, rng: ", ".join(_points(v)),
    notations={
        "another order": lambda v, rng: ", ".join(_points(v)[::-1]),
        "an equals sign": lambda v, rng: ", ".join(_points(v, "{} = ({}, {})")),
        "and": lambda v, rng: "\\text{ and }".join(_points(v)),
    },
    near_misses={
        "exchanged points": lambda v, rng: (*v[2:], *v[:2]),
        "a coordinate": lambda v, rng: (*v[:3], v[3] + 1),
    },
    wrong_texts={
        "another name": lambda v, rng: ", ".join(_points(v, names="AC")),
        "one of them": lambda v, rng: _points(v)[0],
    },
)
