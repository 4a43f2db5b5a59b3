"""Extraction and comparison of final answers. Text only: no code or expression is evaluated."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from fractions import Fraction
from itertools import islice
from typing import Literal

Untagged = Literal["last_line", "last_number", "boxed", "wrong"]

LONGEST_NUMBER = 1000
"""Maximum length of a number, in characters; bounds the cost of exact arithmetic on generated text."""

_DECIMAL = r"(?:(?:[0-9]+|[1-9][0-9]{0,2}(?:,[0-9]{3})+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DIGIT = re.compile("[0-9]")
_NUMBER = re.compile(rf"([+-]?{_DECIMAL})(?: ?/ ?({_DECIMAL}))?")


def final_answers(text: str, tag: str, untagged: Untagged) -> list[str]:
    r"""Return the final answers of `text`, after its thinking; none if it is unfinished.

    Only text after the last ``</think>`` counts; while a ``<think>`` is open there are no answers. Each
    ``<tag>…</tag>`` is an answer; a block that is never closed leaves the text without any. Without blocks,
    `untagged` selects the answer: the last line, the last word with a digit, the content of the last
    ``\boxed{…}``, or none.

    >>> final_answers("<think><answer>1</answer></think>so <answer>2</answer>", "answer", "wrong")
    ['2']
    """
    final_text = text.rpartition("</think>")[2]
    if "<think>" in final_text:
        return []
    blocks = [block.partition(f"</{tag}>") for block in final_text.split(f"<{tag}>")[1:]]
    if blocks:
        return [body for body, _, _ in blocks] if all(closed for _, closed, _ in blocks) else []
    if untagged == "last_line":
        return final_text.strip().splitlines()[-1:]
    if untagged == "last_number":
        words = islice(filter(_DIGIT.search, reversed(final_text.split())), 1)
        return [word.lstrip("([{*_=$:").rstrip(")]}*_$:;,.") for word in words]  # none of it changes a number
    return _boxed(final_text) if untagged == "boxed" else []


def _boxed(text: str) -> list[str]:
    """Return the content of the last box, with nested braces; nothing if it is never closed."""
    _, box, content = text.rpartition("\\boxed{")
    depth = 1
    for position, character in enumerate(content if box else ""):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return [content[:position]]
    return []


def parse_number(text: str) -> Fraction | None:
    """Return the exact value of ``632``, ``-1,234.50``, ``.5``, ``3e-4`` or ``2/3``; None for anything else.

    Units, percent signs, NaN, infinity and misplaced thousands separators give None.

    >>> parse_number("1,234.5"), parse_number("2/4"), parse_number("12,34"), parse_number("50%"), parse_number("inf")
    (Fraction(2469, 2), Fraction(1, 2), None, None, None)
    """
    ascii_text = text.strip().replace("−", "-")
    match = _NUMBER.fullmatch(ascii_text) if len(ascii_text) <= LONGEST_NUMBER else None
    if match is None:
        return None
    numerator, denominator = (Fraction(part.replace(",", "")) for part in match.groups(default="1"))
    return numerator / denominator if denominator else None


def same_text(gold: str, *, casefold: bool) -> Callable[[str], bool]:
    """Return a test for equality with `gold`, ignoring surrounding white space."""
    fold = str.casefold if casefold else str
    return lambda answer: fold(answer.strip()) == fold(gold.strip())


_ARTICLES = ("a", "an", "the")


def normalized(text: str) -> str:
    """Return a text as the exact match of SQuAD (arXiv 1606.05250) compares it: no case, punctuation or articles.

    An article alone is kept: the answer "A" of a choice.

    >>> normalized(" The  Eiffel-Tower. "), normalized("(A)")
    ('eiffeltower', 'a')
    """
    words = text.casefold().translate(_PUNCTUATION).split()
    return " ".join([word for word in words if word not in _ARTICLES] or words)


def same_number(gold: Fraction, *, tolerance: float) -> Callable[[str], bool]:
    """Return a test for a number within `tolerance` of `gold`."""
    # through its decimal notation, so that 0.01 is a hundredth and not the float below it
    bound = Fraction(repr(tolerance))

    def is_same(answer: str) -> bool:
        value = parse_number(answer)
        return value is not None and abs(value - gold) <= bound

    return is_same
