"""Sets, tuples and pairs of solutions."""

from __future__ import annotations

import random
from collections.abc import Iterable
from fractions import Fraction

from rlm_audit.mathematics.fractions import draw_fraction, latex_fraction
from rlm_audit.mathematics.integers import SIGNS
from rlm_audit.mathematics.subject import Subject


def draw_number(rng: random.Random, size: int) -> Fraction:
    """Return an integer or a fraction."""
    return Fraction(rng.randint(-5 * size, 5 * size)) if rng.random() < 0.7 else draw_fraction(rng, 1)


def _set(rng: random.Random, size: int) -> frozenset[Fraction]:
    return frozenset(draw_number(rng, size + 2) for _ in range(2 + size // 2)) | {Fraction(0), Fraction(1)}


def in_some_order(items: Iterable[Fraction], rng: random.Random) -> list[str]:
    """Return the LaTeX of numbers in a random order."""
    listed = [latex_fraction(item) for item in sorted(items)]
    rng.shuffle(listed)
    return listed


def braces(items: list[str]) -> str:
    """Return a set with its elements."""
    return "\\{" + ", ".join(items) + "\\}"


def _without_one(value: frozenset[Fraction], rng: random.Random) -> frozenset[Fraction]:
    return value - {rng.choice(sorted(value))}


def _with_repetition(value: frozenset[Fraction], rng: random.Random) -> str:
    items = in_some_order(value, rng)
    return braces([*items, rng.choice(items)])


SETS = Subject(
    draw=_set,
    write=lambda v, rng: braces([latex_fraction(item) for item in sorted(v)]),
    notations={
        "another order": lambda v, rng: braces(in_some_order(v, rng)),
        "a repeated element": _with_repetition,
        "a list": lambda v, rng: ", ".join(in_some_order(v, rng)),
        "solutions": lambda v, rng: " \\text{ or } ".join(f"x = {item}" for item in in_some_order(v, rng)),
        "a union": lambda v, rng: f"{braces(in_some_order([max(v)], rng))} \\cup {braces(in_some_order(v, rng))}",
        "a name": lambda v, rng: f"x \\in {braces(in_some_order(v, rng))}",
    },
    near_misses={
        "a missing element": _without_one,
        "a further element": lambda v, rng: v | {max(v) + 1},
        "another element": lambda v, rng: _without_one(v, rng) | {max(v) + 1},
        "the sign of an element": lambda v, rng: frozenset(-item if item == max(v) else item for item in v),
    },
    wrong_texts={
        "a tuple": lambda v, rng: f"({', '.join(in_some_order(v, rng))})",
        "two unknowns": lambda v, rng: f"x={', '.join(in_some_order(v - {min(v)}, rng))}, y={min(v)}",
        "one element": lambda v, rng: latex_fraction(max(v)),
        "an element twice for another": lambda v, rng: braces([*in_some_order(v - {min(v)}, rng), str(max(v))]),
        "an interval": lambda v, rng: f"[{latex_fraction(min(v))}, {latex_fraction(max(v))}]",
    },
)


def _tuple(rng: random.Random, size: int) -> tuple[Fraction, ...]:
    return tuple(draw_number(rng, size) for _ in range(2 + size // 3))


def _parenthesized(value: tuple[Fraction, ...], rng: random.Random) -> str:
    return f"({', '.join(map(latex_fraction, value))})"


def _assignments(names: str, value: tuple[Fraction, ...]) -> str:
    return ", ".join(f"{name} = {latex_fraction(x)}" for name, x in zip(names, value, strict=False))


def _reducible(value: Fraction) -> str:
    return f"\\frac{{{2 * value.numerator}}}{{{2 * value.denominator}}}"


def _change_one(value: tuple[Fraction, ...], rng: random.Random) -> tuple[Fraction, ...]:
    index = rng.randrange(len(value))
    return (*value[:index], value[index] + rng.choice(SIGNS), *value[index + 1 :])


TUPLES = Subject(
    draw=_tuple,
    write=_parenthesized,
    notations={
        "a point": lambda v, rng: f"\\text{{{rng.choice(['Point', 'the point', 'Vertex:'])} }}{_parenthesized(v, rng)}",
        "names": lambda v, rng: f"({', '.join('xyzt'[: len(v)])}) = {_parenthesized(v, rng)}",
        "assignments": lambda v, rng: _assignments("xyz", v) if len(v) < 4 else None,
        "fractions not in lowest terms": lambda v, rng: f"({', '.join(map(_reducible, v))})",
        "angle brackets": lambda v, rng: f"\\langle {', '.join(map(latex_fraction, v))} \\rangle",
        "a font": lambda v, rng: f"\\{rng.choice(['mathbf', 'textbf', 'mathrm', 'text'])}{{{_parenthesized(v, rng)}}}",
        "a column": lambda v, rng: "\\begin{pmatrix}" + " \\\\ ".join(map(latex_fraction, v)) + "\\end{pmatrix}",
    },
    near_misses={
        "exchanged components": lambda v, rng: (v[1], v[0], *v[2:]),
        "a component": _change_one,
        "the sign of a component": lambda v, rng: (-v[0], *v[1:]),
        "a missing component": lambda v, rng: v[:-1] if len(v) > 2 else None,
        "a further component": lambda v, rng: (*v, v[0]),
        "reversed": lambda v, rng: v[::-1],
    },
    wrong_texts={
        "closed brackets": lambda v, rng: f"[{', '.join(map(latex_fraction, v))}]",
        "a half-open interval": lambda v, rng: f"({', '.join(map(latex_fraction, v))}]",
        "a list": lambda v, rng: ", ".join(map(latex_fraction, v)),
        "a set": lambda v, rng: braces([*map(latex_fraction, v)]),
        "assignments the wrong way": lambda v, rng: _assignments("yxz", v) if len(v) < 4 and v[0] != v[1] else None,
        "names the wrong way": lambda v, rng: f"(y, x) = {_parenthesized(v, rng)}" if len(v) == 2 else None,
        "a choice of assignments": lambda v, rng: _assignments("xyz", v).replace(", ", "\\text{ or }"),
        "the first component": lambda v, rng: latex_fraction(v[0]),
    },
)


PAIRS = Subject(
    draw=lambda rng, size: (rng.randint(-9 * size, 9 * size), rng.randint(1, 9 * size)),
    write=lambda v, rng: f"{v[0]} \\pm {v[1]}",
    notations={
        "a list": lambda v, rng: f"{v[0] + v[1]}, {v[0] - v[1]}",
        "a set": lambda v, rng: braces([str(v[0] - v[1]), str(v[0] + v[1])]),
        "a set with a sign": lambda v, rng: f"\\{{{v[0]} \\pm {v[1]}\\}}",
        "solutions": lambda v, rng: f"x = {v[0] - v[1]} \\text{{ or }} x = {v[0] + v[1]}",
        "an equation": lambda v, rng: f"x = {v[0]} \\pm {v[1]}",
        "a root": lambda v, rng: f"{v[0]} \\pm \\sqrt{{{v[1] ** 2}}}",
    },
    near_misses={"the center": lambda v, rng: (v[0] + 1, v[1]), "the distance": lambda v, rng: (v[0], v[1] + 1)},
    wrong_texts={
        "one of them": lambda v, rng: str(v[0] + v[1]),
        "the other one": lambda v, rng: f"{v[0]}-{v[1]}",
        "one sign wrong": lambda v, rng: f"{v[0] + v[1]}, {v[1] - v[0]}" if v[0] and v[0] != v[1] else None,
        "a third one": lambda v, rng: f"{v[0] - v[1]}, {v[0]}, {v[0] + v[1]}",
    },
)
