"""Units, currencies and percent signs around a number."""

from __future__ import annotations

import re
from fractions import Fraction

PERCENT = "%"

_ABBREVIATIONS = {
    "millimeter": "mm",
    "centimeter": "cm",
    "meter": "m",
    "kilometer": "km",
    "inch": "in",
    "inche": "in",
    "feet": "foot",
    "ft": "foot",
    "yd": "yard",
    "mi": "mile",
    "gram": "g",
    "kilogram": "kg",
    "liter": "l",
    "litre": "l",
    "metre": "m",
    "centimetre": "cm",
    "kilometre": "km",
    "sec": "second",
    "s": "second",
    "min": "minute",
    "hr": "hour",
    "h": "hour",
    "usd": "dollar",
    "deg": "degree",
    "lb": "pound",
    "mph": "mile/hour",
}
_SIZES: dict[str, dict[str, Fraction]] = {
    "length": {"mm": Fraction(1, 1000), "cm": Fraction(1, 100), "m": Fraction(1), "km": Fraction(1000)},
    "yards": {"in": Fraction(1, 36), "foot": Fraction(1, 3), "yard": Fraction(1), "mile": Fraction(1760)},
    "mass": {"mg": Fraction(1, 1000), "g": Fraction(1), "kg": Fraction(1000)},
    "volume": {"ml": Fraction(1, 1000), "l": Fraction(1)},
    "time": {"second": Fraction(1), "minute": Fraction(60), "hour": Fraction(3600), "day": Fraction(86400)},
    "money": {"cent": Fraction(1, 100), "dollar": Fraction(1)},
}
"""Quantity → unit → its size."""
_ONE_LETTER = {*"msghlLJNWVKACF"}
_BARE = {
    **dict.fromkeys(["mm", "cm", "km", "mg", "kg", "ml", "inch", "foot", "yard", "mile", "minute", "hour", "second"]),
    **dict.fromkeys(["day", "week", "month", "year", "dollar", "cent", "degree", "unit", "gram", "meter", "liter"]),
    **dict.fromkeys(["pound", "feet", "inche", "way", "people", "percent", "euro", "point", "student", "square unit"]),
}
_QUALIFIER_WORDS = (
    "or and not no nor but wrong false incorrect is if maybe perhaps about approximately roughly around than less "
    "more most least fewer over under minus plus times mod modulo base squared cubed half third quarter twice "
    "double hundred thousand million billion trillion dozen percent pi factorial infinity to from between else "
    "either"
)
_QUALIFIERS = set(_QUALIFIER_WORDS.split())
"""Words that change the number before them, retract it, or offer another."""

_WORDS = re.compile(r"[A-Za-z]+(?:[ /·-][A-Za-z]+){0,3}")
_TEXT = re.compile(r"\s*\\(?:text|mathrm)\s*\{\s*([^{}]*?)\s*\}\s*(?:\^\s*\{?\s*([23])\s*\}?)?\s*$")
_TRIGONOMETRIC = re.compile("sin|cos|tan|cot|sec|csc")
_DEGREES = re.compile(r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)\s*$")
_TRAILING = re.compile(r"(?<=[\d}]) ?([A-Za-z]+(?: [A-Za-z]+)?)(?:\^\{?([23])\}?)?$")


def split(text: str) -> tuple[str, str | None]:
    """Return (value, unit) of a normalized text; the unit is None if there is none, or if the word changes the number.

    >>> split(r"4\\text{ cm}"), split("90^\\\\circ"), split(r"\\$5"), split("50\\\\%"), split("3 apples")
    (('4', 'cm'), ('90', 'degree'), ('5', 'dollar'), ('50', '%'), ('3 apples', None))
    >>> split(r"4\\text{ million}"), split(r"4\\text{ metres}"), split("2x"), split("5 cm^2")
    (('4\\\\text{ million}', None), ('4', 'm'), ('2x', None), ('5', 'cm^2'))
    """
    if match := re.fullmatch(r"(.*?)\s*\\?%", text, re.S):
        return match[1], PERCENT
    if (match := _DEGREES.search(text)) and not _TRIGONOMETRIC.search(text):  # sin 30° is a number without unit
        return text[: match.start()], "degree"
    if match := re.fullmatch(r"(-?)\s*(?:\\\$|€|£)\s*(.+)|(.+?)\s*(?:\\\$|€|£)", text, re.S):
        return (f"{match[1]}{match[2]}" if match[2] else match[3]), "dollar" if "$" in text else "money"
    if (match := _TEXT.search(text)) and match.start() > 0:
        unit = _unit(match[1], match[2])
        return (text[: match.start()], unit) if unit else (text, None)
    if match := _TRAILING.search(text):
        words = match[1].lower()
        if words.removesuffix("s") in _BARE and (unit := _unit(match[1], match[2])):
            return text[: match.start()], unit
    return text, None


def conversion(unit: str | None, other: str | None) -> Fraction | None:
    """Return how many of the unit `other` one `unit` is; None if they measure different quantities.

    >>> conversion("km", "m"), conversion("cm^2", "m^2"), conversion("m", "kg"), conversion("m", None)
    (Fraction(1000, 1), Fraction(1, 10000), None, None)
    """
    (name, _, power), (other_name, _, other_power) = ((each or "").partition("^") for each in (unit, other))
    for sizes in _SIZES.values():
        if name in sizes and other_name in sizes and power == other_power:
            return (sizes[name] / sizes[other_name]) ** int(power or 1)
    return None


def _unit(words: str, power: str | None) -> str | None:
    """Return the canonical name of a unit; None if the words are not a unit."""
    words = words.strip().removesuffix(".")
    if not _WORDS.fullmatch(words) or (len(words) == 1 and words not in _ONE_LETTER):
        return None
    parts = re.split(r"([ /·-])", words if len(words) == 1 else words.lower())
    if words.lower() == "percent":
        return PERCENT
    if _QUALIFIERS & {*parts}:
        return None
    name = "".join(_singular(part) for part in parts)
    square = re.match(r"(square|sq|cubic) (.+)", name)
    if square:
        return f"{square[2]}^{3 if square[1] == 'cubic' else 2}"
    return f"{name}^{power}" if power else name


def _singular(word: str) -> str:
    if len(word) > 2 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    return _ABBREVIATIONS.get(word, word)
