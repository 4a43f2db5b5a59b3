"""Names on one side of an equation that are no part of the answer: ``m + n = 73``, ``[ABC] = 12``."""

from __future__ import annotations

import re
from string import ascii_lowercase

from rlm_math.quantity_words import is_object, is_quantity

_SUM = re.compile(r"[A-Za-z](?:\s*[+-]?\s*[A-Za-z]){1,3}")
_TEXT = r"\\(?:text|mathrm|operatorname)\s*\{\s*([A-Za-z '’]+?)\s*\}"
_WORDS = re.compile(rf"{_TEXT}\s*(?:_?\s*\{{?\s*(?:\\triangle\s*)?([A-Za-z]{{1,4}})\s*\}}?)?")
_FIGURE = re.compile(
    r"\\overline\s*\{\s*[A-Z]{2}\s*\}|\[\s*[A-Z]{3,6}\s*\]|[A-Za-z]_\{?\s*\\(?:triangle|max|min)\s*[A-Z]{0,4}\s*\}?"
)
_INDEXED = re.compile(rf"[A-Za-z]_\s*\{{\s*{_TEXT}\s*[A-Z]{{0,4}}\s*\}}")
_WORD = re.compile(r"[A-Z]?[a-z]{2,}")
_OF_VARIABLE = re.compile(r"(?:values?|minimum|maximum|coefficient|degree|measure) of$", re.I)
_LABELED = re.compile(rf"\s*({_WORDS.pattern})\s*=(?!=)\s*(.+)", re.S)


def is_quantity_name(text: str) -> bool:
    """Return True for a sum or product of two to four different letters, a figure, or words that name a quantity.

    >>> [is_quantity_name(text) for text in ("m+n", "AB", "[ABC]", r"\\text{Area}", "2x", "x+x", r"\\text{bound}")]
    [True, True, True, True, False, False, False]
    """
    if is_label(text) or _FIGURE.fullmatch(text):
        return True
    letters = re.findall("[A-Za-z]", text)
    is_sum = _SUM.fullmatch(text) is not None and len(letters) == len({*letters}) and not {*"ei"} & {*letters}
    return is_sum and (not _WORD.fullmatch(text) or _is_product(text) or is_quantity(text))


def _is_product(letters: str) -> bool:
    """Return True for letters that are no word: without a vowel and no function, or successive ones such as abc."""
    is_run = letters in ascii_lowercase
    return is_run or (letters.islower() and not {*"aou"} & {*letters})


def is_label(text: str) -> bool:
    """Return True for words that name a quantity, also as an index, or a single letter in \\text."""
    words, index = _WORDS.fullmatch(text), _INDEXED.fullmatch(text)
    if words:
        is_of_variable = not words[2] or words[2].isupper() or _OF_VARIABLE.search(words[1])
        return bool(is_of_variable) and (len(words[1]) == 1 or is_quantity(words[1]))
    return index is not None and is_object(index[1])


def split_label(text: str) -> tuple[str, str]:
    r"""Return (words, value) of a text such as ``\text{Area} = 12``; ("", text) for anything else.

    >>> split_label(r"\text{Total Cost} = 12"), split_label("x = 12")
    (('total cost', '12'), ('', 'x = 12'))
    """
    match = _LABELED.fullmatch(text)
    return (" ".join(match[2].lower().split()), match[4]) if match and "=" not in match[4] else ("", text)


_GENERAL = {"answer", "ans", "value", "result", "total", "number", "amount"}
_GENERAL |= {"point", "pair", "triple", "coordinate", "coordinates", "solution"}


def is_other_label(gold: str, label: str) -> bool:
    """Return True for two names in words of which neither contains the words of the other, nor is a general one.

    >>> is_other_label("loss", "profit"), is_other_label("area", "total area"), is_other_label("area", "answer")
    (True, False, False)
    """
    first, second = {*gold.split()} - {"the"}, {*label.split()} - {"the"}
    return bool(first and second) and not (first <= second or second <= first or _GENERAL & (first ^ second))
