"""Several options, numbered statements, names of quantities, words after a number, and answers in Chinese."""

from __future__ import annotations

import random
from fractions import Fraction

from rlm_audit.mathematics.fractions import latex_fraction
from rlm_audit.mathematics.subject import Subject

Labels = tuple[int, ...]


def _draw_labels(rng: random.Random, size: int) -> Labels:
    return tuple(sorted(rng.sample(range(6), rng.randint(2, 4))))


def _letters(value: Labels) -> list[str]:
    return ["ABCDEF"[each] for each in value]


def _circled(value: Labels) -> list[str]:
    return [chr(ord("①") + each) for each in value]


_NEAR_LABELS = {
    "one less": lambda v, rng: v[1:] if len(v) > 2 else None,
    "one more": lambda v, rng: tuple(sorted({*v, rng.randrange(6)})),
    "another": lambda v, rng: tuple(sorted({*v[:-1], (v[-1] + 1) % 6})) if (v[-1] + 1) % 6 not in v else None,
}

OPTIONS = Subject(
    draw=_draw_labels,
    write=lambda v, rng: "".join(_letters(v)),
    notations={
        "commas": lambda v, rng: ", ".join(_letters(v)),
        "another order": lambda v, rng: "".join(rng.sample(_letters(v), len(v))),
        "text": lambda v, rng: f"\\text{{{', '.join(_letters(v)[:-1])} and {_letters(v)[-1]}}}",
        "a set": lambda v, rng: f"\\{{{','.join(_letters(v))}\\}}",
    },
    near_misses=_NEAR_LABELS,
    wrong_texts={
        "a choice": lambda v, rng: "\\text{ or }".join(_letters(v)),
        "one of them": lambda v, rng: _letters(v)[0],
        "twice": lambda v, rng: "".join(_letters(v)) + _letters(v)[0],
        "small letters": lambda v, rng: "".join(_letters(v)).lower(),
        "a denial": lambda v, rng: f"\\text{{not {', '.join(_letters(v))}}}",
    },
    is_spelled=False,
)

STATEMENTS = Subject(
    draw=_draw_labels,
    write=lambda v, rng: "".join(_circled(v)),
    notations={
        "commas": lambda v, rng: "、".join(_circled(v)),
        "another order": lambda v, rng: "".join(rng.sample(_circled(v), len(v))),
        "brackets": lambda v, rng: "".join(f"({each + 1})" for each in v),
    },
    near_misses=_NEAR_LABELS,
    wrong_texts={
        "a number of these digits": lambda v, rng: "".join(str(each + 1) for each in v),
        "one of them": lambda v, rng: _circled(v)[0],
        "a product": lambda v, rng: str((v[0] + 1) * (v[1] + 1)),
        "a pair": lambda v, rng: f"({','.join(str(each + 1) for each in v)})",
    },
    is_spelled=False,
)

_NOUNS = ["apples", "red balls", "students", "square units", "games", "children", "years old"]
_NO_UNITS = ["bn", "mn", "mil", "thou", "radical", "odd", "impossible", "und", "pct", "times", "hundreds", "zeroes"]
_NO_UNITS += ["sixes", "grosses", "naughts", "twentieths", "tenfold", "zillions", "units below", "units missing"]
_NO_NAMES = ["half", "twice", "negative", "reversed", "neither", "unanswer", "error", "upper bound", "fake answer"]
_NAMES = ["Area", "Total", "Sum of the roots", "minimum value", "number of ways", "John's age", "total cost"]


def _consonants(rng: random.Random) -> str:
    return "".join(rng.choice("bdfpqvwxz") for _ in range(rng.randint(2, 5)))


NAMED = Subject(
    draw=lambda rng, size: rng.randint(2, 10**size),
    write=lambda v, rng: str(v),
    notations={
        "the sum of two unknowns": lambda v, rng: f"m+n={v}",
        "a segment": lambda v, rng: f"{rng.choice(['AB', 'BC', 'PQ'])} = {v}",
        "an area": lambda v, rng: f"[ABC]={v}",
        "its name in words": lambda v, rng: f"\\text{{{rng.choice(_NAMES)}}} = {v}",
        "the name on the right": lambda v, rng: f"{v}=m+n",
        "a noun": lambda v, rng: f"{v}\\text{{ {rng.choice(_NOUNS)}}}",
        "a noun without text": lambda v, rng: f"{v} {rng.choice(_NOUNS)}",
        "an ordinal": lambda v, rng: f"{v}^{{\\text{{th}}}}",
        "a price": lambda v, rng: f"\\text{{\\$}}{v}",
    },
    near_misses={"one more": lambda v, rng: v + 1},
    wrong_texts={
        "a multiple of the unknown": lambda v, rng: f"2x={v}",
        "its square": lambda v, rng: f"x^2={v}",
        "its opposite": lambda v, rng: f"-x={v}",
        "a sum with a number": lambda v, rng: f"m+1={v}",
        "words of another value": lambda v, rng: f"\\text{{{rng.choice(_NO_NAMES)}}} = {v}",
        "a denied name": lambda v, rng: f"\\text{{{rng.choice(['not', 'un', 'half'])} {rng.choice(_NAMES)}}} = {v}",
        "an unknown word as an index": lambda v, rng: f"x_{{\\text{{{_consonants(rng)}}}}} = {v}",
        "a word that is no unit": lambda v, rng: f"{v}\\text{{ {rng.choice(_NO_UNITS)}}}",
        "letters that are no unit": lambda v, rng: f"{v}\\text{{ {_consonants(rng)}}}",
        "a product": lambda v, rng: f"{v} {rng.choice(['xyz', 'abc', 'xy', 'ab cd'])}",
        "a number of a whole": lambda v, rng: f"{v}\\text{{ out of }}{v + 1}",
        "a digit after an ordinal": lambda v, rng: f"{str(v)[0]}^{{th}}{str(v)[1:]}" if v > 9 else None,
    },
    is_spelled=False,
)

SHARES = Subject(
    draw=lambda rng, size: Fraction(rng.randint(1, 9 * size), 9 * size + rng.randint(1, 9)),
    write=lambda v, rng: latex_fraction(v),
    notations={
        "out of": lambda v, rng: f"{v.numerator}\\text{{ out of }}{v.denominator}",
        "in": lambda v, rng: f"{v.numerator}\\text{{ in }}{v.denominator}",
        "in a font": lambda v, rng: f"\\math{rng.choice(['rm', 'bf', 'it'])}{{{latex_fraction(v)}}}",
    },
    near_misses={"one more": lambda v, rng: v + Fraction(1, v.denominator)},
    wrong_texts={
        "inverted": lambda v, rng: f"{v.denominator}\\text{{ out of }}{v.numerator}",
        "inverted with in": lambda v, rng: f"{v.denominator}\\text{{ in }}{v.numerator}",
    },
    is_spelled=False,
)

CHINESE = Subject(
    draw=lambda rng, size: (rng.randint(1, 9 * size), rng.randint(10 * size, 10**size + 20)),
    write=lambda v, rng: f"x={v[0]}或x={v[1]}",
    notations={
        "a list": lambda v, rng: f"{v[1]}, {v[0]}",
        "or": lambda v, rng: f"x={v[1]}\\text{{ or }}x={v[0]}",
        "a comma": lambda v, rng: f"{v[0]}，{v[1]}",
    },
    near_misses={"one more": lambda v, rng: (v[0] + 1, v[1])},
    wrong_texts={
        "one of them": lambda v, rng: f"x={v[0]}",
        "three": lambda v, rng: f"x={v[0]}或x={v[1]}或x={v[1] + 1}",
        "digits together": lambda v, rng: f"{v[0]}{v[1]}",
    },
    is_spelled=False,
)

_CHINESE_CHANGES = ["万", "亿", "万元", "多", "左右", "倍", "几", "以上", "以内", "打", "次方", "的倒数"]
CHINESE_UNITS = Subject(
    draw=lambda rng, size: rng.randint(2, 10**size),
    write=lambda v, rng: str(v),
    notations={"a unit": lambda v, rng: f"{v}{rng.choice(['元', '个', '平方米', '人', '千克', '度'])}"},
    near_misses={"one more": lambda v, rng: v + 1},
    wrong_texts={
        "a word that changes it": lambda v, rng: f"{v}{rng.choice(_CHINESE_CHANGES)}",
        "another option": lambda v, rng: f"{v}或{v + 1}",
    },
    is_spelled=False,
)
