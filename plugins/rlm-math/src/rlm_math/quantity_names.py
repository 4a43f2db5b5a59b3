"""Names on one side of an equation that are no part of the answer: ``m + n = 73``, ``[ABC] = 12``."""

from __future__ import annotations

import re

from rlm_math.unit_words import changes_number

_SUM = re.compile(r"[A-Za-z](?:\s*[+-]?\s*[A-Za-z]){1,3}")
_WORDS = re.compile(r"\\text\s*\{([A-Za-z ]+)\}\s*[A-Z]{0,4}")
_FIGURE = re.compile(r"\\overline\s*\{\s*[A-Z]{2}\s*\}|\[\s*[A-Z]{3,6}\s*\]")
_INDEXED = re.compile(r"[A-Za-z]_\{?\s*\\(?:triangle|max|min|text\s*\{[a-z]+\}|mathrm\s*\{[a-z]+\})\s*[A-Z]{0,4}\s*\}?")


def is_quantity_name(text: str) -> bool:
    """Return True for a sum or product of two to four different letters, a figure, or words that are no denial.

    >>> [is_quantity_name(text) for text in ("m+n", "AB", "[ABC]", r"\\text{Area}", "2x", "x+x", r"\\text{not}")]
    [True, True, True, True, False, False, False]
    """
    if words := _WORDS.fullmatch(text):
        return not any(map(changes_number, words[1].lower().split()))
    if _FIGURE.fullmatch(text) or _INDEXED.fullmatch(text):
        return True
    letters = re.findall("[A-Za-z]", text)
    is_sum = _SUM.fullmatch(text) is not None and len(letters) == len({*letters})
    return is_sum and not {*"ei"} & {*letters} and not (text.islower() and changes_number(text))
