"""Tuples, sets and lists: their form, and what they hold where that is plain numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from rlm_math.numerals import number
from rlm_math.spelling import commas

_RELATION = re.compile(r"[<>]|\\[lg]eq|\\[lg]t(?![a-z])")
_SIGNS = re.compile(r"\\[pm][pm](?![a-z])")
_TUPLE = re.compile(r"\s*(?:[\[(]|\\langle).*(?:[\])]|\\rangle)\s*", re.S)
_LISTED = re.compile(r"\s*(\(|\[|\\\{|)(.*?)(\)|\]|\\\}|)\s*", re.S)


class Numbers(NamedTuple):
    """A list of plain numbers in its brackets."""

    opened: str
    items: list[Fraction]
    closed: str


def numbers(text: str) -> Numbers | None:
    """The numbers of a list of two or more; None where something else is in it, or its brackets do not match.

    >>> numbers("(1, 2.5]")
    Numbers(opened='(', items=[Fraction(1, 1), Fraction(5, 2)], closed=']')
    >>> numbers("(1, x)") is None, numbers("7") is None
    (True, True)
    """
    found = _LISTED.fullmatch(text)
    if not found or "," not in found[2] or (found[1], found[3]) not in _PAIRS:
        return None
    items = [number(item) for item in found[2].split(",")]
    return None if None in items else Numbers(found[1], items, found[3])  # type: ignore[arg-type]


_PAIRS = {("", ""), ("\\{", "\\}"), *((a, b) for a in "([" for b in ")]")}


def both(text: str) -> str:
    """One formula with ± as the two it stands for; any other as it is.

    >>> print(both(r"\\frac{1 \\pm \\sqrt{5}}{2}"))
    \\frac{1 + \\sqrt{5}}{2}, \\frac{1 - \\sqrt{5}}{2}
    >>> print(both(r"(1, \\pm 2)"))
    (1, \\pm 2)
    """
    if len(_SIGNS.findall(text)) != 1 or "\\pm" not in text or "," in text or "\\{" in text:
        return text
    return ", ".join(_SIGNS.sub(sign, text) for sign in "+-")


def same_numbers(
    gold: Numbers, other: Numbers, near: Callable[[Fraction, Fraction], bool], *, ordered: bool, strict: bool
) -> bool:
    """Whether two lists of numbers are the same: sets in any order, tuples in theirs and in the same brackets."""
    if len(gold.items) != len(other.items) or _is_set(gold.opened) != _is_set(other.opened):
        return False
    if not _is_set(gold.opened) and strict and (gold.opened, gold.closed) != (other.opened, other.closed):
        return False
    pair = (gold.items, other.items)
    a, b = pair if ordered and not _is_set(gold.opened) else map(sorted, pair)
    return all(near(y, x) for x, y in zip(a, b, strict=True))


def _is_set(opened: str) -> bool:
    return opened in ("", "\\{")


def same_form(gold: str, answer: str) -> bool:
    """As many parts, in brackets of one kind: a list without brackets is a set, a tuple never is."""
    if _RELATION.search(gold):
        return True  # x > 2 or (2, ∞): both ways to say it
    if _RELATION.search(answer):
        return commas(gold) == 1
    kinds = {_TUPLE.fullmatch(text) is None for text in (gold, answer)}
    return commas(gold) == commas(answer) and (not commas(gold) or len(kinds) == 1)
