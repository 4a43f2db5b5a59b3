"""Matrices, lengths, choices, words and numerals with a base."""

from __future__ import annotations

import random
import re
from fractions import Fraction

from rlm_audit.mathematics.fractions import latex_fraction
from rlm_audit.mathematics.subject import Subject

Rows = tuple[tuple[int, ...], ...]


def _matrix(value: Rows, name: str = "pmatrix") -> str:
    return f"\\begin{{{name}}}" + " \\\\ ".join(" & ".join(map(str, row)) for row in value) + f"\\end{{{name}}}"


def _draw_matrix(rng: random.Random, size: int) -> Rows:
    rows, columns = rng.randint(1, 2 + size // 4), rng.randint(2, 2 + size // 3)
    return tuple(tuple(rng.randint(-9, 9) for _ in range(columns)) for _ in range(rows))


MATRICES = Subject(
    draw=_draw_matrix,
    write=lambda v, rng: _matrix(v),
    notations={
        "square brackets": lambda v, rng: _matrix(v, "bmatrix"),
        "fractions": lambda v, rng: re.sub(r"-?\d+", lambda m: f"\\frac{{{2 * int(m[0])}}}{{2}}", _matrix(v)),
        "a final line break": lambda v, rng: _matrix(v).replace("\\end", "\\\\\\end"),
    },
    near_misses={
        "transposed": lambda v, rng: tuple(zip(*v, strict=True)),
        "an entry": lambda v, rng: ((v[0][0] + 1, *v[0][1:]), *v[1:]),
        "the sign": lambda v, rng: tuple(tuple(-x for x in row) for row in v),
        "exchanged rows": lambda v, rng: v[::-1],
        "a missing row": lambda v, rng: v[1:] or None,
        "a missing column": lambda v, rng: tuple(row[1:] for row in v),
    },
    wrong_texts={
        "a determinant": lambda v, rng: _matrix(v, "vmatrix"),
        "its entries": lambda v, rng: ", ".join(str(x) for row in v for x in row),
    },
    is_spelled=False,
)

_LONG = {"cm": "centimeters", "m": "meters"}
_LENGTHS = {"mm": 1, "cm": 10, "m": 1000, "km": 10**6}
LENGTHS = Subject(
    draw=lambda rng, size: (Fraction(rng.randint(1, 10**size)), rng.choice(["cm", "m"])),
    write=lambda v, rng: f"{latex_fraction(v[0])}\\text{{ {v[1]}}}",
    notations={
        "roman letters": lambda v, rng: f"{latex_fraction(v[0])}\\,\\mathrm{{{v[1]}}}",
        "plain letters": lambda v, rng: f"{latex_fraction(v[0])} {v[1]}" if v[1] == "cm" else None,
        "the long name": lambda v, rng: f"{latex_fraction(v[0])}\\text{{ {_LONG[v[1]]}}}",
        "without the unit": lambda v, rng: latex_fraction(v[0]),
        "another unit of length": lambda v, rng: f"{int(v[0] * _LENGTHS[v[1]])}\\text{{ mm}}",
    },
    near_misses={"one more": lambda v, rng: (v[0] + 1, v[1])},
    wrong_texts={
        "the other unit": lambda v, rng: f"{latex_fraction(v[0])}\\text{{ {'m' if v[1] == 'cm' else 'cm'}}}",
        "a squared unit": lambda v, rng: f"{latex_fraction(v[0])}\\text{{ {v[1]}}}^2",
        "a unit of mass": lambda v, rng: f"{latex_fraction(v[0])}\\text{{ kg}}",
        "a percent sign": lambda v, rng: f"{latex_fraction(v[0])}\\%",
    },
)

CHOICES = Subject(
    draw=lambda rng, size: rng.choice("ABCDE"),
    write=lambda v, rng: v,
    notations={
        "brackets": lambda v, rng: f"({v})",
        "text": lambda v, rng: f"\\text{{{v}}}",
        "bold text in brackets": lambda v, rng: f"\\textbf{{({v})}}",
        "roman letters": lambda v, rng: f"\\mathrm{{{v}}}",
    },
    near_misses={"another letter": lambda v, rng: rng.choice([x for x in "ABCDE" if x != v])},
    wrong_texts={
        "two letters": lambda v, rng: f"{v}, {rng.choice([x for x in 'ABCDE' if x != v])}",
        "all letters": lambda v, rng: "ABCDE",
        "either of two": lambda v, rng: f"{v} \\text{{ or }} {rng.choice([x for x in 'ABCDE' if x != v])}",
        "a lower-case letter": lambda v, rng: v.lower(),
        "not it": lambda v, rng: f"\\text{{not }} {v}",
    },
    is_spelled=False,
)

_WORDS = ["yes", "no", "even", "odd", "Monday", "Thursday", "parabola", "east", "no solution", "infinitely many"]
WORDS = Subject(
    draw=lambda rng, size: rng.choice(_WORDS),
    write=lambda v, rng: f"\\text{{{v}}}",
    notations={
        "capital letters": lambda v, rng: f"\\text{{{v.capitalize()}}}",
        "without LaTeX": lambda v, rng: v,
        "a full stop": lambda v, rng: f"\\text{{{v}}}.",
        "quotation marks": lambda v, rng: rng.choice([f"``{v}''", f'\\text{{"{v}"}}', f"\\text{{'{v}'}}"]),
    },
    near_misses={"another word": lambda v, rng: rng.choice(_WORDS)},
    wrong_texts={
        "a denial": lambda v, rng: f"\\text{{not {v}}}",
        "two words": lambda v, rng: f"\\text{{{v} or maybe}}",
        "a number": lambda v, rng: "1",
    },
    is_spelled=False,
)


def _anagram(word: str, rng: random.Random) -> str:
    return "".join(rng.sample(word, len(word)))


SHORT_WORDS = Subject(
    draw=lambda rng, size: rng.choice(["cat", "dog", "saw", "top", "tea", "red", "car", "listen", "north", "up"]),
    write=lambda v, rng: rng.choice(["WORD", "\\text{WORD}", "\\mathrm{WORD}"]).replace("WORD", v),
    notations={"text": lambda v, rng: f"\\text{{{v}}}", "without LaTeX": lambda v, rng: v},
    near_misses={"its letters in another order": _anagram},
    wrong_texts={"a letter more": lambda v, rng: v + "s", "a number of it": lambda v, rng: f"2{v}"},
    is_spelled=False,
)
PRODUCTS = Subject(
    draw=lambda rng, size: "".join(rng.sample("bcdfkmnpqrst", rng.randint(2, 3))),
    write=lambda v, rng: v,
    notations={"another order": _anagram, "with signs": lambda v, rng: " \\cdot ".join(_anagram(v, rng))},
    near_misses={"another letter": lambda v, rng: v[:-1] + "z"},
    is_spelled=False,
)


def _digits(v: tuple[int, int]) -> str:
    number, digits = v[0], ""
    while number:
        number, digit = divmod(number, v[1])
        digits = f"{digit}{digits}"
    return digits


BASES = Subject(
    draw=lambda rng, size: (rng.randint(2, 10 ** (size + 1)), rng.randint(2, 9)),
    write=lambda v, rng: f"{_digits(v)}_{{{v[1]}}}",
    notations={
        "brackets": lambda v, rng: f"({_digits(v)})_{{{v[1]}}}",
        "no braces": lambda v, rng: f"{_digits(v)}_{v[1]}",
        "its name": lambda v, rng: f"{_digits(v)}\\text{{ base }}{v[1]}",
        "its name as an index": lambda v, rng: f"\\mathbf{{{_digits(v)}}}_{{\\text{{base }}{v[1]}}}",
    },
    near_misses={"one more": lambda v, rng: (v[0] + 1, v[1])},
    wrong_texts={
        "another base": lambda v, rng: f"{_digits(v)}_{{{v[1] + 1}}}",
        "the name of another base": lambda v, rng: f"{_digits(v)}\\text{{ base }}{v[1] + 1}",
        "without the base": lambda v, rng: _digits(v),
        "not converted": lambda v, rng: f"{v[0]}_{{10}}" if v[0] >= v[1] else None,
    },
    is_spelled=False,
)
