"""The data set's answer, read once: a number, a letter to choose, words, or something to be worked out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from rlm_math import units
from rlm_math.numerals import LONGEST, number
from rlm_math.spelling import plain, tidy

Kind = Literal["number", "letter", "words", "formula"]

_NAME = r"[A-Za-z](?:_\{?\w+\}?)?(?:\s*\([a-z](?:,\s*[a-z])*\))?"
_NAMED = re.compile(rf"\s*(?:{_NAME}|\\?[({{]\s*{_NAME}(?:\s*,\s*{_NAME})+\s*\\?[)}}])\s*=(?!=)")
_EQUALS = re.compile(r"(?<![<>!:=])=(?!=)")
_WRAPPED = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"\(?\s*([A-Z])\s*[).:]?")
_WORDS = re.compile(r"[A-Za-z][A-Za-z'.-]*(?: [A-Za-z][A-Za-z'.-]*)*")
_SHORT = {"yes", "no", "odd", "even", "dne", "all", "one", "two", "six", "ten"}


@dataclass(frozen=True)
class Gold:
    """An answer to hold others against.

    Args:
        text: As `tidy` leaves it.
        kind: How it is compared.
        name: What it is the value of (the x of ``x = 4``); empty: nothing in particular.
        value: Without name and unit.
        unit: The unit it stands in, if any.
        exact: Its value where it is a number.
    """

    text: str
    kind: Kind
    name: str = ""
    value: str = ""
    unit: str | None = None
    exact: Fraction | None = None


@lru_cache(maxsize=4096)
def read(answer: str) -> Gold | None:
    """Reads a data set's answer, with or without ``$`` or a box around it; None when there is nothing to read.

    >>> read("50\\\\%").kind, read("(A)").value, read("\\\\text{no solution}").kind, read("x = 2y").value
    ('number', 'A', 'words', '2y')
    """
    written = plain(answer)
    text = tidy(written) if written else ""
    while box := re.fullmatch(r"\\boxed\s*\{(.*)\}", text):
        text = box[1].strip()
    if not text:
        return None
    if len(text) > LONGEST and text.isdecimal():
        return Gold(text, "words", value=text)  # nobody works with that: only what is written alike
    if letter := as_letter(text):
        return Gold(text, "letter", value=letter)
    if words := as_words(text):
        return Gold(text, "words", value=words)
    name, value = named(text)
    if "=" in value:
        name, value = "", text  # an equation, or a chain of them
    bare, unit = units.split(value)
    exact = number(bare)
    return Gold(text, "formula" if exact is None else "number", name, bare, unit, exact)


def as_letter(text: str) -> str:
    """The letter of ``A``, ``(A)`` or ``\\text{A}``; empty for anything else."""
    found = _LETTER.fullmatch(_WRAPPED.sub(r"\1", text).strip())
    return found[1] if found else ""


def as_words(text: str) -> str:
    """Words in one spelling; empty for what may be a product of variables, or holds anything but words."""
    inside = _WRAPPED.sub(r" \1 ", text)
    words = " ".join(inside.split()).removesuffix(".")
    if not _WORDS.fullmatch(words):
        return ""
    certain = _WRAPPED.fullmatch(text) or words.lower() in _SHORT or any(len(w) > 3 for w in words.split())
    return words.lower() if certain else ""


def named(text: str) -> tuple[str, str]:
    """(name, value) of ``x = 4`` or ``(x, y) = (1, 2)``; of anything else ("", itself)."""
    found = _NAMED.match(text)
    return (found[0].rstrip("= "), text[found.end() :].strip()) if found else ("", text)


def sides(text: str) -> list[str]:
    """What stands between the equals signs."""
    return [side.strip() for side in _EQUALS.split(text)]
