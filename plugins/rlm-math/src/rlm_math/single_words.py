"""Answers of one word: ``act`` is not ``cat``, although the products of their letters are equal."""

from __future__ import annotations

import re
from string import ascii_lowercase

_WRAPPED = re.compile(r"\\(?:text|mathrm|mathit|operatorname)\s*\{\s*([A-Za-z]{2,})\s*\}")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_ROMAN = re.compile("[IVX]{2,}")
_SHORT = {"on", "no", "up", "in"}


def same_word(gold: str, text: str) -> bool | None:
    """Return whether two texts are the same word; None if they are no words, or one is more than letters.

    >>> same_word("cat", "act"), same_word("cat", r"\\text{Cat}"), same_word("abc", "bca"), same_word("cat", "2act")
    (False, True, None, None)
    >>> same_word("IV", "VI"), same_word("IV", "IV")
    (False, True)
    """
    wrapped = [_WRAPPED.fullmatch(each) for each in (gold, text)]
    words = [match[1] if match else each for match, each in zip(wrapped, (gold, text), strict=True)]
    if all(map(_ROMAN.fullmatch, words)):
        return words[0] == words[1]
    if not all(map(_LETTERS.fullmatch, words)) or not (any(wrapped) or _is_word(gold)):
        return None
    return _without_case(words[0]) == _without_case(words[1])


def _without_case(word: str) -> str:
    """Return a word in lower case; symbols, of two letters or with a capital inside, as they are.

    >>> [_without_case(word) for word in ("Cat", "CAT", "No", "Co", "mW", "AaBb")]
    ['cat', 'cat', 'no', 'Co', 'mW', 'AaBb']
    """
    is_symbol = len(word) < 3 and word.lower() not in _SHORT
    return word if is_symbol or word not in (word.lower(), word.title(), word.upper()) else word.lower()


def _is_word(letters: str) -> bool:
    """Return True for letters with a vowel that are not successive ones, such as abc; two letters are a product."""
    if letters[1:] != letters[1:].lower():
        return False  # AB is a segment, ABC a triangle
    has_vowel = re.search("[aeiouy]", letters, re.I) is not None
    is_product = letters in ascii_lowercase or len(letters) < 3
    return (has_vowel and not is_product) or letters.lower() in _SHORT
