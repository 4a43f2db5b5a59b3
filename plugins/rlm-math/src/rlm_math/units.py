"""Units, currencies and percent signs around a number."""

from __future__ import annotations

import re
from fractions import Fraction

from rlm_math.numerals import numeral, parse_number
from rlm_math.unit_names import MULTIPLES, PERCENT, canonical_unit, conversion, is_named

__all__ = ["MULTIPLES", "PERCENT", "conversion", "is_certain", "is_compound", "split"]

_BARE_WORDS = (
    "mm cm km mg kg ml inch foot yard mile minute hour second day week month year dollar cent degree unit gram meter "
    "liter pound feet inche way people percent euro point student usd eur gbp oz ounce mph radian"
)
_BARE = {*_BARE_WORDS.split(), "square unit"}
"""Units that need no \\text."""
_CURRENCIES = {"\\$": "dollar", "USD": "dollar", "€": "euro", "EUR": "euro", "£": "pound", "GBP": "pound", "¥": "yen"}
_CURRENCIES |= {"₹": "rupee", "Rs.": "rupee", "¢": "cent"}
_CURRENCY = "|".join(map(re.escape, _CURRENCIES))
_PRICE = re.compile(rf"(-?)\s*({_CURRENCY})\s*(.+)|(.+?)\s*({_CURRENCY})", re.S)
_WRAPPED = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_INSIDE = r"[^{}]*(?:\{\s*-?\d\s*\}[^{}]*)*"
_TEXT = re.compile(rf"\s*\\(?:text|mathrm)\s*\{{\s*({_INSIDE}?)\s*\}}\s*(?:\^\s*\{{?\s*([23]|-[1-4])\s*\}}?)?\s*$")
_TEXT_OVER_TEXT = re.compile(r"(\\(?:text|mathrm)\s*\{[^{}]*)\}\s*/\s*\\(?:text|mathrm)\s*\{([^{}]*\})")
_UNIT = r"\\(?:text|mathrm)\s*\{\s*([A-Za-z]+)\s*\}"
_UP = r"\s*(\^\s*\{?\s*[1-9]\s*\}?)?\s*"
_QUOTIENT = re.compile(rf"\\frac\s*\{{\s*{_UNIT}{_UP}\}}\s*\{{\s*{_UNIT}{_UP}\}}$")
_INVERSE = re.compile(rf"{_UNIT}\s*(?:\\cdot\s*)?{_UNIT}\s*\^\s*\{{\s*-([12])\s*\}}$")
_INCHES = 12
_TRIGONOMETRIC = re.compile("sin|cos|tan|cot|sec|csc|cis")
_CIRCLE = r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)\s*"
_DEGREES = re.compile(rf"{_CIRCLE}$")
_TEMPERATURE = re.compile(rf"{_CIRCLE}(?:\\(?:text|mathrm)\s*\{{)?\s*([CF])\s*\}}?$")
_PRIME = r"(?:'|\^\s*\{?\s*\\prime\s*\}?)"
_MINUTES = re.compile(rf"(\d+){_CIRCLE}(\d+)\s*{_PRIME}(?:\s*(\d+)\s*{_PRIME}{{2}})?")
_FEET = re.compile(
    r"(\d+)\s*(?:'|\^\s*\{?\s*\\prime\s*\}?)\s*(\d+(?:\.\d+)?)\s*(?:''|\"|\^\s*\{\s*\\prime\s*\\prime\s*\})"
)
_TRAILING = re.compile(r"(?<=[\d}]) ?([A-Za-z]+(?: [A-Za-z]+)?)(?:\^\{?([23])\}?)?$")
_SEPARATE = re.compile(r"(?<=[\d}]) ([A-Za-z]{2,}(?:\.? [A-Za-z]{2,}){0,3}|[a-z]+/[a-z]+)(?:\^\{?([23])\}?)?$")
_LETTERS = re.compile(r"(?<=[\d}]) ?([A-Za-z]+(?:/[A-Za-z]+)?)(?:\^\{?([23])\}?)?$")
_AND = re.compile(r"(?:\s*(?:[,;]|\\text\s*\{\s*,?\s*and\s*\}|(?<![A-Za-z])and(?![A-Za-z])))+\s*")
_AND_IN_TEXT = re.compile(r"(\\text\s*\{\s*[^{}\s][^{}]*?),?\s+and\s*\}")
_SHARE = re.compile(r"(.*?)\s*\\?%", re.S)
_CHINESE = re.compile(r"(?<=[\d}])\s*([\u4e00-\u9fff]+)()$")
_COMPOUND = re.compile(r"\s*(\d[\d.]*)\s*([A-Za-z]+)\.?\s*(?:,|and)?\s*(\d[\d.]*)\s*([A-Za-z]+)\.?\s*")


def split(text: str, expected: str | None = None) -> tuple[str, str | None]:
    """Return (value, unit) of a normalized text. The unit is None if there is none, or a word changes the number.

    Letters after a number are a product, unless they are the unit that is `expected`: 18 m for 18 meters.

    >>> split(r"4\\text{ cm}"), split("90^\\\\circ"), split(r"\\$5"), split("50\\\\%"), split("3 xy")
    (('4', 'cm'), ('90', 'degree'), ('5', 'dollar'), ('50', '%'), ('3 xy', None))
    >>> split(r"4\\text{ million}"), split(r"4\\text{ metres}"), split("2x"), split("5 cm^2")
    (('4\\\\text{ million}', None), ('4', 'm'), ('2x', None), ('5', 'cm^2'))
    """
    if (match := _SHARE.fullmatch(text)) and "%" not in match[1]:
        return match[1], PERCENT
    if match := _MINUTES.fullmatch(text):
        return numeral(int(match[1]) + Fraction(60 * int(match[2]) + int(match[3] or 0), 3600)), "degree"
    if (match := _FEET.fullmatch(text)) and Fraction(match[2]) < _INCHES:
        return numeral(_INCHES * int(match[1]) + Fraction(match[2])), "in"
    if match := _TEMPERATURE.search(text):
        return text[: match.start()], {"C": "celsius", "F": "fahrenheit"}[match[1]]
    is_single = text.count("\\circ") == 1 and not _TRIGONOMETRIC.search(text)  # sin 30° is a number without unit
    if is_single and (match := _DEGREES.search(text)):
        return text[: match.start()], "degree"
    if match := _PRICE.fullmatch(text):
        value, currency = (f"{match[1]}{match[3]}", match[2]) if match[3] else (match[4], match[5])
        return value, _CURRENCIES[currency]
    if compound := _compound(text):
        return compound
    if expected and (match := _LETTERS.search(text)) and canonical_unit(match[1], match[2]) == expected:
        return text[: match.start()], expected
    return _of_each(text) or _written_unit(text)


def _of_each(text: str) -> tuple[str, str] | None:
    """Return numbers in one unit as a list without it; None for anything else.

    >>> _of_each(r"3\\text{ cm and }4\\text{ cm}"), _of_each(r"3\\text{ cm}, 4\\text{ m}")
    (('3; 4', 'cm'), None)
    """
    texts = [part.strip() for part in _AND.split(_AND_IN_TEXT.sub(r"\1},", text))]
    parts = [(each[1], PERCENT) if (each := _SHARE.fullmatch(part)) else _written_unit(part) for part in texts]
    unit = parts[0][1]
    is_list = len(parts) > 1 and unit and all(each[1] == unit and parse_number(each[0]) is not None for each in parts)
    return ("; ".join(value for value, _ in parts), unit) if is_list and unit else None


def _written_unit(text: str) -> tuple[str, str | None]:
    joined = _TEXT_OVER_TEXT.sub(r"\1/\2", _QUOTIENT.sub(r"\\text{\1\2/\3\4}", text))
    joined = _INVERSE.sub(r"\\text{\1/\2^\3}", joined)
    if (match := _TEXT.search(joined)) and match.start() > 0:
        unit = canonical_unit(match[1], match[2])
        return (joined[: match.start()], unit) if unit else (text, None)
    if match := _TRAILING.search(text):
        words = match[1].lower()
        if words.removesuffix("s") in _BARE and (unit := canonical_unit(match[1], match[2])):
            return text[: match.start()], unit
    if match := _SEPARATE.search(text) or _CHINESE.search(text):
        words, unit = match[1], canonical_unit(match[1], match[2])
        if unit and _is_bare(unit, words):  # 18 xyz is a product
            return text[: match.start()], unit
    return text, None


def _is_bare(unit: str, words: str) -> bool:
    """Return True for words that name a unit also without \\text: known ones, or a plural."""
    if "/" in words:
        return all(is_named(part, part) for part in unit.split("/"))
    return is_named(unit, words)


def is_certain(unit: str, tail: str) -> bool:
    """Return True if what follows a number only names a unit; a word that is no known one may change the number.

    Args:
        unit: The unit as `split` returns it.
        tail: The text after the number.
    """
    return unit == PERCENT or is_named(unit, re.sub(r"\\[A-Za-z]+", " ", tail))


def is_compound(text: str) -> bool:
    """Return True for a quantity in two units, such as 1 hour 30 minutes."""
    return _compound(text) is not None


def _compound(text: str) -> tuple[str, str] | None:
    """Return ``1 hour 30 minutes`` in the smaller unit; None for anything else.

    >>> _compound(r"1\\text{ hour }30\\text{ minutes}"), _compound("1 hour 90 minutes")
    (('90', 'minute'), None)
    """
    match = _COMPOUND.fullmatch(_WRAPPED.sub(r" \1 ", text))
    if match is None:
        return None
    large, small = canonical_unit(match[2]), canonical_unit(match[4])
    factor, first, second = conversion(large, small), parse_number(match[1]), parse_number(match[3])
    if small is None or first is None or second is None or factor is None or factor <= 1 or second >= factor:
        return None
    return numeral(factor * first + second), small
