"""Answers in words: numbers, "no solution", options with their answer."""

from __future__ import annotations

import random
from collections.abc import Callable

from rlm_audit.mathematics.subject import Subject

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"


def in_words(value: int, joint: str = " ") -> str:
    """Return a whole number below a million in English; `joint` follows "hundred".

    >>> in_words(21), in_words(1205, " and "), in_words(-7)
    ('twenty-one', 'one thousand two hundred and five', 'negative seven')
    """
    if value < 0:
        return f"negative {in_words(-value, joint)}"
    if value < 20:
        return _ONES.split()[value]
    if value < 100:
        return _TENS.split()[value // 10 - 2] + (f"-{in_words(value % 10)}" if value % 10 else "")
    size, name, link = (100, "hundred", joint) if value < 1000 else (1000, "thousand", " ")
    rest = f"{link}{in_words(value % size, joint)}" if value % size else ""
    return f"{in_words(value // size, joint)} {name}{rest}"


def _draw_number(rng: random.Random, size: int) -> int:
    return rng.randint(1, 10 ** min(size, 5)) * rng.choice([1, 1, 1, -1])


def _changed_digit(value: int, rng: random.Random) -> int:
    digits = [*str(abs(value))]
    place = rng.randrange(len(digits))
    digits[place] = str((int(digits[place]) + rng.randint(1, 9)) % 10)
    return int("".join(digits)) * (1 if value > 0 else -1)


NUMBER_WORDS = Subject(
    draw=_draw_number,
    write=lambda v, rng: str(v),
    notations={
        "words": lambda v, rng: in_words(v),
        "words in brackets": lambda v, rng: f"{v} ({in_words(v)})" if v >= 0 else None,
        "British words": lambda v, rng: f"\\text{{{in_words(v, ' and ')}}}",
        "a capital letter": lambda v, rng: f"\\text{{{in_words(v).capitalize()}}}.",
        "an introduction": lambda v, rng: f"\\text{{The answer is {in_words(v)}}}",
        "a noun": lambda v, rng: f"\\text{{{in_words(v)} apples}}" if v > 1 else None,
    },
    near_misses={
        "one more": lambda v, rng: v + 1,
        "the opposite": lambda v, rng: -v,
        "another digit": _changed_digit,
        "ten times": lambda v, rng: 10 * v if abs(v) < 10**5 else None,
    },
    wrong_texts={
        "two numbers": lambda v, rng: f"\\text{{{in_words(v)} or {in_words(v + 1)}}}",
        "other words in brackets": lambda v, rng: f"{v} ({in_words(v + 1)})",
        "another number before its words": lambda v, rng: f"{v + 1} ({in_words(v)})",
        "a larger unit": lambda v, rng: f"\\text{{{in_words(v)} million}}",
        "an ordinal": lambda v, rng: f"\\text{{{in_words(v)}th}}",
        "a denial": lambda v, rng: f"\\text{{not {in_words(v)}}}",
        "a bound": lambda v, rng: f"\\text{{at least {in_words(v)}}}",
        "a decimal cut off": lambda v, rng: f"{in_words(v)} point" if v != 1 else None,
        "halves in the singular": lambda v, rng: f"{in_words(2 * v)} half" if 0 < v < 10 else None,
    },
    is_spelled=False,
)

_NOTHING = ("\\emptyset", "\\varnothing", "\\{\\}", "\\text{no solution}", "\\text{No solutions}", "\\text{none}")
_SOMETHING = (
    "0",
    "\\{0\\}",
    "\\{\\emptyset\\}",
    "\\text{one solution}",
    "\\text{infinitely many}",
    "\\mathbb{R}",
    "()",
)
NO_SOLUTION = Subject(
    draw=lambda rng, size: rng.choice(_NOTHING),
    write=lambda v, rng: v,
    notations={"another name": lambda v, rng: rng.choice(_NOTHING)},
    wrong_texts={
        "a solution": lambda v, rng: rng.choice(_SOMETHING),
        "a number": lambda v, rng: str(rng.randint(-9, 9)),
        "a denial": lambda v, rng: "\\text{not no solution}",
    },
    is_spelled=False,
)


def _option(form: str) -> Callable[[tuple[str, int], random.Random], str]:
    return lambda value, rng: form.replace("LETTER", value[0]).replace("NUMBER", str(value[1]))


OPTIONS = Subject(
    draw=lambda rng, size: (rng.choice("ABCDE"), rng.randint(0, 10**size)),
    write=_option("\\textbf{(LETTER)}\\ NUMBER"),
    notations={
        "the letter": _option("LETTER"),
        "the answer": _option("NUMBER"),
        "in one text": _option("\\text{(LETTER) NUMBER}"),
    },
    wrong_texts={
        "another letter": lambda v, rng: rng.choice([x for x in "ABCDE" if x != v[0]]),
        "another answer": lambda v, rng: str(v[1] + 1),
        "two letters": lambda v, rng: f"\\text{{({v[0]}) or ({rng.choice([x for x in 'ABCDE' if x != v[0]])})}}",
        "the letter with another answer": lambda v, rng: f"\\textbf{{({v[0]})}}\\ {v[1] + 1}",
        "another letter with the answer": lambda v, rng: (
            f"\\textbf{{({rng.choice([x for x in 'ABCDE' if x != v[0]])})}}\\ {v[1]}"
        ),
    },
    is_spelled=False,
)
