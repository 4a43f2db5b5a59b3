"""Numbers written as English words: cardinals, fractions, signs, and scales after a numeral (``3.5 million``)."""

from __future__ import annotations

import re
from fractions import Fraction

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = {word: n for n, word in enumerate(_ONES.split())} | {word: 10 * n for n, word in enumerate(_TENS.split(), 2)}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {
    "half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
    "ninth": 9, "tenth": 10, "twelfth": 12, "hundredth": 100, "thousandth": 1000,
}  # fmt: skip
"""Name of a part → how many of them make one."""
_SIGNS = ("negative", "minus")
_SCALED = re.compile(r"([+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?) (hundred|thousand|million|billion|trillion|dozen)")
MAX_WORDS = 24


def parse_number_words(text: str) -> Fraction | None:
    """Return the value of a number in words; None for anything else, also for a lone ordinal such as "third".

    >>> texts = ("twenty-one", "two hundred and five", "minus three quarters", "one and a half", "3.5 million")
    >>> [str(parse_number_words(text)) for text in texts]
    ['21', '205', '-3/4', '3/2', '3500000']
    >>> parse_number_words("one two"), parse_number_words("third"), parse_number_words("one hundred ninety twenty")
    (None, None, None)
    """
    text = " ".join(text.lower().split())
    if scaled := _SCALED.fullmatch(text):
        return Fraction(scaled[1].replace(",", "")) * (_SCALES | {"hundred": 100, "dozen": 12})[scaled[2]]
    words = re.sub(r"(?<=[a-z])-(?=[a-z])", " ", text).split()
    if not 0 < len(words) <= MAX_WORDS:
        return None
    if words[0] == "a" and words[1:2] and words[1] in {"hundred", *_SCALES}:
        words[0] = "one"
    if words[0] in _SIGNS:
        value = _unsigned(words[1:])
        return None if value is None else -value
    return _unsigned(words)


def _unsigned(words: list[str]) -> Fraction | None:
    if "point" in words:
        return _decimal(words)
    part = _part(words[-1]) if words else None
    if part is None:
        return _fraction_free(words)
    before = words[:-1]
    if "and" in before:
        at = len(before) - 1 - before[::-1].index("and")
        whole, count = _cardinal(before[:at]), _count(before[at + 1 :])
        if whole is not None and count is not None and 0 < count < part and _agree(count, words[-1]):
            return whole + Fraction(count, part)
    count = _count(before) if before else 1 if words[-1] == "half" else None
    return Fraction(count, part) if count and _agree(count, words[-1]) else None


def _agree(count: int, name: str) -> bool:
    """Return True for one third and two thirds, but not for two third."""
    return name.endswith("s") == (count != 1)


def _decimal(words: list[str]) -> Fraction | None:
    """Return the value of ``two point five``."""
    at = words.index("point")
    whole, digits = (_cardinal(words[:at]) if at else 0), [_SMALL.get(word, 10) for word in words[at + 1 :]]
    if whole is None or not digits or max(digits) > 9:
        return None
    return whole + Fraction(int("".join(map(str, digits))), 10 ** len(digits))


def _part(word: str) -> int | None:
    return _PARTS.get(word, _PARTS.get(word.removesuffix("s")))


def _count(words: list[str]) -> int | None:
    return 1 if words in (["a"], ["an"]) else _cardinal(words)


def _fraction_free(words: list[str]) -> Fraction | None:
    if words[-1:] == ["dozen"]:
        count = _count(words[:-1]) if words[:-1] else 1
        return None if count is None else Fraction(12 * count)
    value = _cardinal(words)
    return None if value is None else Fraction(value)


def _cardinal(words: list[str]) -> int | None:
    """Return a whole number: groups below a thousand, each with its scale, from the largest scale down."""
    total, group, last_scale = 0, list[str](), 10**15
    for word in words:
        if word not in _SCALES:
            group.append(word)
            continue
        value = _below_thousands(group) if group else 1
        if value is None or _SCALES[word] >= last_scale:
            return None
        total, last_scale, group = total + value * _SCALES[word], _SCALES[word], []
    if not group:
        return total if words else None
    if total and group[0] == "hundred":
        return None  # one thousand hundred
    rest = _below_thousands(group[1:] if total and group[0] == "and" else group)
    return None if rest is None or (total and rest >= last_scale) else total + rest


def _below_thousands(words: list[str]) -> int | None:
    """Return the value of a group: ``two hundred and five``, also ``twenty-five hundred``."""
    if "hundred" not in words:
        return _below_hundred(words)
    at = words.index("hundred")
    hundreds = _below_hundred(words[:at]) if at else 1
    rest = words[at + 1 :]
    if rest[:1] == ["and"]:
        rest = rest[1:] or [""]
    ones = _below_hundred(rest) if rest else 0
    return None if not hundreds or ones is None else 100 * hundreds + ones


def _below_hundred(words: list[str]) -> int | None:
    values = [_SMALL.get(word, -1) for word in words]
    if len(values) == 1 and values[0] >= 0:
        return values[0]
    is_pair = len(values) == 2 and values[0] >= 20 and 0 < values[1] < 10
    return sum(values) if is_pair else None
