"""Tuples, sets and lists: their form, and their items if these are plain numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from rlm_math.latex_normalization import count_commas
from rlm_math.numerals import parse_number

_RELATION = re.compile(r"[<>]|\\[lg]eq|\\[lg]t(?![a-z])")
_SIGNS = re.compile(r"\\[pm][pm](?![a-z])")
_TUPLE = re.compile(r"\s*(?:[\[(]|\\langle).*(?:[\])]|\\rangle)\s*", re.S)
_LISTED = re.compile(r"\s*(\(|\[|\\\{|)(.*?)(\)|\]|\\\}|)\s*", re.S)


class Numbers(NamedTuple):
    """A list of plain numbers with its brackets."""

    opened: str
    items: list[Fraction]
    closed: str


def parse_numbers(text: str) -> Numbers | None:
    """Parse a list of two or more numbers; None if it has other items, or its brackets do not match.

    >>> parse_numbers("(1, 2.5]")
    Numbers(opened='(', items=[Fraction(1, 1), Fraction(5, 2)], closed=']')
    >>> parse_numbers("(1, x)") is None, parse_numbers("7") is None
    (True, True)
    """
    match = _LISTED.fullmatch(text)
    if not match or "," not in match[2] or (match[1], match[3]) not in _PAIRS:
        return None
    items = [parse_number(item) for item in match[2].split(",")]
    return None if None in items else Numbers(match[1], items, match[3])  # type: ignore[arg-type]


_PAIRS = {("", ""), ("\\{", "\\}"), *((a, b) for a in "([" for b in ")]")}


def expand_plus_minus(text: str) -> str:
    """Expand one ± into the two formulas that it abbreviates; return any other text unchanged.

    >>> print(expand_plus_minus(r"\\frac{1 \\pm \\sqrt{5}}{2}"))
    \\frac{1 + \\sqrt{5}}{2}, \\frac{1 - \\sqrt{5}}{2}
    >>> print(expand_plus_minus(r"(1, \\pm 2)"))
    (1, \\pm 2)
    """
    if len(_SIGNS.findall(text)) != 1 or "\\pm" not in text or "," in text or "\\{" in text:
        return text
    return ", ".join(_SIGNS.sub(sign, text) for sign in "+-")


def are_same_numbers(
    gold: Numbers, other: Numbers, is_near: Callable[[Fraction, Fraction], bool], *, ordered: bool, strict: bool
) -> bool:
    """Compare two lists of numbers: sets in any order, tuples in order and with the same brackets."""
    if len(gold.items) != len(other.items) or _is_set(gold.opened) != _is_set(other.opened):
        return False
    if not _is_set(gold.opened) and strict and (gold.opened, gold.closed) != (other.opened, other.closed):
        return False
    pair = (gold.items, other.items)
    a, b = pair if ordered and not _is_set(gold.opened) else map(sorted, pair)
    return all(is_near(y, x) for x, y in zip(a, b, strict=True))


def _is_set(opened: str) -> bool:
    return opened in ("", "\\{")


def have_same_form(gold: str, answer: str) -> bool:
    """Return True if both have as many items and brackets of one kind: a bare list is a set, never a tuple."""
    if _RELATION.search(gold):
        return True  # x > 2 or (2, ∞): two notations of one set
    if _RELATION.search(answer):
        return count_commas(gold) == 1
    kinds = {_TUPLE.fullmatch(text) is None for text in (gold, answer)}
    return count_commas(gold) == count_commas(answer) and (not count_commas(gold) or len(kinds) == 1)
