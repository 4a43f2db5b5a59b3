"""Vectors in unit vectors, distances, days of the year, symbols of units, polar forms, and values of functions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from rlm_audit.mathematics.subject import Subject, Writer

Vector = tuple[int, ...]


def _with_units(form: str) -> Writer:
    """Return a writer of sums such as ``2\\mathbf{i} - 3\\mathbf{j}``; X in `form` stands for the letter."""

    def write(value: Vector, rng: random.Random) -> str | None:
        terms = [f"{part:+d}{form.replace('X', unit)}" for part, unit in zip(value, "ijk", strict=False) if part]
        return "".join(terms).removeprefix("+") if any(value[1:]) else None

    return write


_UNIT_VECTORS: dict[str, Writer] = {
    "bold unit vectors": _with_units("\\mathbf{X}"),
    "unit vectors with hats": _with_units("\\hat{X}"),
    "plain unit vectors": _with_units("X"),
}


def _draw_vector(rng: random.Random, size: int) -> Vector:
    return tuple(rng.randint(-9 * size, 9 * size) for _ in range(rng.randint(2, 3)))


def _changed(value: Vector, rng: random.Random) -> Vector:
    place = rng.randrange(len(value))
    return (*value[:place], value[place] + rng.choice((-1, 1)), *value[place + 1 :])


def _tuple(value: Vector, rng: random.Random) -> str:
    return f"({', '.join(map(str, value))})"


_NEAR: dict[str, Callable[[Vector, random.Random], Vector]] = {
    "a component": _changed,
    "the opposite": lambda v, rng: tuple(-each for each in v),
    "exchanged components": lambda v, rng: (v[1], v[0], *v[2:]),
}

UNIT_VECTORS = Subject(
    draw=lambda rng, size: (*_draw_vector(rng, size)[:2], rng.randint(1, 9)),
    write=_with_units("\\mathbf{X}"),
    notations={
        "a tuple": _tuple,
        "a column": lambda v, rng: "\\begin{pmatrix} " + " \\\\ ".join(map(str, v)) + " \\end{pmatrix}",
        "hats": _with_units("\\hat{X}"),
    },
    near_misses=_NEAR,
    wrong_texts={"a row": lambda v, rng: f"\\begin{{pmatrix}} {' & '.join(map(str, v))} \\end{{pmatrix}}"},
)
PARAMETERS = Subject(
    draw=lambda rng, size: (rng.randint(1, 9 * size), rng.randint(1, 9 * size)),
    write=lambda v, rng: f"{v[0]}i + {v[1]}j",
    notations={"the other order": lambda v, rng: f"{v[1]}j + {v[0]}i"},
    near_misses={"a factor": lambda v, rng: (v[0] + 1, v[1])},
    wrong_texts={"a tuple": _tuple},
)
VECTORS = Subject(
    draw=_draw_vector,
    write=_tuple,
    notations={**_UNIT_VECTORS, "angles": lambda v, rng: f"\\langle {', '.join(map(str, v))} \\rangle"},
    near_misses=_NEAR,
    wrong_texts={
        "a sum of its components": lambda v, rng: str(sum(v)),
        "a further constant": lambda v, rng: f"{_with_units('X')(v, rng)}+1" if any(v[1:]) else None,
        "a list": lambda v, rng: ", ".join(map(str, v)),
    },
)


_SIGNS = ("<", "\\leq")


def _distance(value: Vector, sign: str) -> str:
    center, radius, _ = value
    return f"|x{-center:+d}| {sign} {radius}" if center else f"|x| {sign} {radius}"


DISTANCES = Subject(
    draw=lambda rng, size: (rng.randint(-9 * size, 9 * size), rng.randint(1, 9 * size), rng.randint(0, 1)),
    write=lambda v, rng: f"{'(['[v[2]]}{v[0] - v[1]}, {v[0] + v[1]}{')]'[v[2]]}",
    notations={
        "a distance": lambda v, rng: _distance(v, _SIGNS[v[2]]),
        "inequalities": lambda v, rng: f"{v[0] - v[1]} {_SIGNS[v[2]]} x {_SIGNS[v[2]]} {v[0] + v[1]}",
    },
    near_misses={
        "the center": lambda v, rng: (v[0] + 1, *v[1:]),
        "the radius": lambda v, rng: (v[0], v[1] + 1, v[2]),
        "the ends": lambda v, rng: (*v[:2], 1 - v[2]),
        "mirrored": lambda v, rng: (-v[0], *v[1:]),
    },
    wrong_texts={"outside": lambda v, rng: _distance(v, (">", "\\geq")[v[2]])},
)

_MONTHS = "January February March April May June July August September October November December"


def _day(form: str) -> Writer:
    def write(value: Vector, rng: random.Random) -> str:
        month, day = value
        end = {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day // 10 != 1 else 0, "th")
        name = _MONTHS.split()[month - 1]
        return f"\\text{{{form.format(month=name, day=day, ending=end)}}}"

    return write


DAYS = Subject(
    draw=lambda rng, size: (rng.randint(1, 12), rng.randint(1, 28)),
    write=_day("{month} {day}"),
    notations={
        "an ordinal": _day("{month} {day}{ending}"),
        "the day first": _day("{day} {month}"),
        "of": _day("{day}{ending} of {month}"),
        "in Chinese": lambda v, rng: f"{v[0]}月{v[1]}日",
    },
    near_misses={
        "the day": lambda v, rng: (v[0], v[1] + 1),
        "the month": lambda v, rng: (v[0] % 12 + 1, v[1]),
    },
    wrong_texts={
        "only the day": lambda v, rng: str(v[1]),
        "a year": _day("{month} {day}, 2020"),
        "either of two": _day("{month} {day} or {day}"),
    },
    is_spelled=False,
)


def _digits(value: Vector, sign: str = "-") -> str:
    return f"{value[0]}{sign}{value[1]:02d}{sign}{value[2]:02d}"


DATES = Subject(
    draw=lambda rng, size: (rng.randint(1000, 2999), rng.randint(1, 12), rng.randint(1, 28)),
    write=lambda v, rng: _digits(v),
    notations={
        "slashes": lambda v, rng: _digits(v, "/"),
        "words": lambda v, rng: f"\\text{{{_MONTHS.split()[v[1] - 1]} {v[2]}, {v[0]}}}",
        "in Chinese": lambda v, rng: f"{v[0]}年{v[1]}月{v[2]}日",
    },
    near_misses={
        "the year": lambda v, rng: (v[0] + 1, *v[1:]),
        "the month": lambda v, rng: (v[0], v[1] % 12 + 1, v[2]),
        "the day": lambda v, rng: (*v[:2], v[2] + 1),
    },
    wrong_texts={
        "exchanged": lambda v, rng: _digits((v[0], v[2], v[1])) if v[1] != v[2] else None,
        "the difference": lambda v, rng: str(v[0] - v[1] - v[2]),
        "without the year": lambda v, rng: _digits(v)[5:],
    },
    is_spelled=False,
)

_SPELLINGS = (
    ("mW", "MW"), ("mHz", "MHz"), ("nm", "Nm", "NM"), ("MB", "Mb"), ("mg", "Mg", "MG"), ("mm", "Mm", "MM"),
    ("kB", "kb"), ("mPa", "MPa"), ("pA", "Pa", "PA"), ("mL", "ML"), ("kn", "kN"), ("meV", "MeV"), ("mT", "MT"),
)  # fmt: skip
_SYMBOLS = [each for spellings in _SPELLINGS for each in spellings]
_MEGA = ["MW", "MHz", "MPa", "MeV"]


def _symbols(text: str) -> Sequence[str]:
    """Return the symbols that differ from `text` in capitals only."""
    return [each for each in _SYMBOLS if each != text and each.lower() == text.lower()]


SYMBOLS = Subject(
    draw=lambda rng, size: (rng.randint(1, 10**size), rng.choice(_SYMBOLS)),
    write=lambda v, rng: f"{v[0]}\\text{{ {v[1]}}}",
    notations={
        "roman letters": lambda v, rng: f"{v[0]}\\,\\mathrm{{{v[1]}}}",
        "without the unit": lambda v, rng: str(v[0]),
        "another prefix": lambda v, rng: f"{1000 * v[0]}\\text{{ k{v[1][1:]}}}" if v[1] in _MEGA else None,
    },
    wrong_texts={
        "only another prefix": lambda v, rng: f"{v[0]}\\text{{ k{v[1][1:]}}}" if v[1] in _MEGA else None,
        "other capitals": lambda v, rng: f"{v[0]}\\text{{ {rng.choice(_symbols(v[1]))}}}",
        "another number": lambda v, rng: f"{v[0] + 1}\\text{{ {v[1]}}}",
    },
)

POLAR = Subject(
    draw=lambda rng, size: (rng.randint(1, 9 * size), rng.choice([k for k in range(1, 24) if k % 12])),
    write=lambda v, rng: f"{v[0]}e^{{{v[1]}i\\pi/12}}",
    notations={
        "cis": lambda v, rng: f"{v[0]}\\operatorname{{cis}}\\frac{{{v[1]}\\pi}}{{12}}",
        "cis of degrees": lambda v, rng: f"{v[0]}\\operatorname{{cis}} {15 * v[1]}^\\circ",
        "cosine and sine": lambda v, rng: (
            f"{v[0]}\\left(\\cos\\frac{{{v[1]}\\pi}}{{12}} + i\\sin\\frac{{{v[1]}\\pi}}{{12}}\\right)"
        ),
    },
    near_misses={
        "the radius": lambda v, rng: (v[0] + 1, v[1]),
        "the angle": lambda v, rng: (v[0], v[1] + 1),
        "conjugated": lambda v, rng: (v[0], 24 - v[1]),
    },
)

VALUES_OF = Subject(
    draw=lambda rng, size: rng.randint(-(10**size), 10**size),
    write=lambda v, rng: str(v),
    notations={
        "of a function": lambda v, rng: f"{rng.choice('fgh')}({rng.randint(-9, 9)}) = {v}",
        "of a length": lambda v, rng: f"|AB| = {v}",
    },
    near_misses={"one more": lambda v, rng: v + 1},
    wrong_texts={
        "a function without a value": lambda v, rng: f"f({v})",
        "its argument": lambda v, rng: f"f({v}) = {v + 1}",
        "two values": lambda v, rng: f"f(2) = {v} = {v + 1}",
    },
)
