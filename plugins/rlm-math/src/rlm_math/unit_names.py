"""Names of units in one notation, and their sizes: ``km per hour`` is ``km/hour``, and 10 m/s are 36 km/h."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction

from rlm_math import chinese, unit_symbols
from rlm_math.unit_symbols import cased
from rlm_math.unit_words import changes_number

PERCENT = "%"

_ABBREVIATIONS = unit_symbols.NAMES | {
    "inch": "in", "inche": "in", "feet": "foot", "ft": "foot", "yd": "yard", "mi": "mile", "kgs": "kg", "lb": "pound",
    "ounce": "oz", "cc": "cm^3",
    "sec": "second", "s": "second", "min": "minute", "hr": "hour", "h": "hour", "yr": "year",
    "mph": "mile/hour", "kph": "km/hour", "kmh": "km/hour", "kmph": "km/hour", "mps": "m/second",
    "usd": "dollar", "eur": "euro", "gbp": "pound", "deg": "degree", "rad": "radian", "sq": "square", "cu": "cubic",
    "centurie": "century", "millennia": "millennium",
    "pa": "pascal", "hz": "hertz", "celsius": "celsius",
    "kilobyte": "kB", "megabyte": "MB", "gigabyte": "GB", "terabyte": "TB",
}  # fmt: skip
_CAPITALS = {"N": "newton", "J": "joule", "W": "watt", "V": "volt", "A": "ampere", "K": "kelvin", "L": "l"}
_LENGTH, _MASS, _TIME, _CALENDAR, _MONEY = ({name: 1} for name in ("length", "mass", "time", "calendar", "money"))
_INCH = Fraction(254, 10000)
_SIZES: dict[str, tuple[dict[str, int], Fraction]] = {
    "m": (_LENGTH, Fraction(1)), "in": (_LENGTH, _INCH), "foot": (_LENGTH, 12 * _INCH),
    "yard": (_LENGTH, 36 * _INCH), "mile": (_LENGTH, 63360 * _INCH), "l": ({"length": 3}, Fraction(1, 1000)),
    "g": (_MASS, Fraction(1)), "oz": (_MASS, Fraction("453.59237") / 16), "pound": (_MASS, Fraction("453.59237")),
    "hectare": ({"length": 2}, Fraction(10**4)), "acre": ({"length": 2}, 43560 * (12 * _INCH) ** 2),
    "second": (_TIME, Fraction(1)), "minute": (_TIME, Fraction(60)), "hour": (_TIME, Fraction(3600)),
    "day": (_TIME, Fraction(86400)), "week": (_TIME, Fraction(604800)),
    "fortnight": (_TIME, Fraction(14 * 86400)),
    "month": (_CALENDAR, Fraction(1)), "year": (_CALENDAR, Fraction(12)), "decade": (_CALENDAR, Fraction(120)),
    "century": (_CALENDAR, Fraction(1200)), "millennium": (_CALENDAR, Fraction(12000)),
    "cent": (_MONEY, Fraction(1, 100)), "dollar": (_MONEY, Fraction(1)),
}  # fmt: skip
"""Unit → its dimensions and its size."""
MULTIPLES = {"fortnight", "decade", "century", "millennium"}
"""Units of time that are a number of others: one decade is no 1 where no unit is asked for."""
_ONE_LETTER = {*"msghlLJNWVKACF"}
_POWER = r"(?:\s*\^\s*\{?\s*-?[1-9]\s*\}?)?"
_WORDS = re.compile(rf"[A-Za-z]+{_POWER}(?:(?: per |[ /·-]| \* )[A-Za-z]+{_POWER}){{0,3}}")
_FACTOR = re.compile(r"(square |cubic )?([A-Za-z][A-Za-z ·-]*?)(?:\^(-?\d))?")


def canonical_unit(words: str, power: str | None = None) -> str | None:
    """Return a unit in one notation; None if the words are not a unit, or change the number before them.

    >>> [canonical_unit(words) for words in ("km per hour", "m/s^2", "square feet", "Red Apples", "or more")]
    ['km/hour', 'm/second^2', 'foot^2', 'red apple', None]
    """
    words = re.sub(r"\b(sq|cu)\.", r"\1", " ".join(words.split()).removesuffix("."))
    if words.lower() in ("percent", "per cent", "percentage points"):
        return PERCENT
    if chinese.is_unit(words):
        return chinese.unit_name(words)
    if not _WORDS.fullmatch(words) or (len(words) == 1 and words not in _ONE_LETTER):
        return None
    if power and power.startswith("-"):
        words, power = f"{words}^{power}", None
    words = re.sub(r"\s*\^\s*\{?\s*(-?\d)\s*\}?", r"^\1", words).replace(" per ", "/")
    words = re.sub(r"[ ·](\w+)\^-(\d)$", r"/\1^\2", words)
    parts = [_CAPITALS.get(part) or _singular(cased(part)) for part in re.split(r"([ /·^-])", words)]
    if any(map(changes_number, parts)):
        return None
    name = "".join(parts).replace("degree celsius", "celsius").replace("degree fahrenheit", "fahrenheit")
    if power:
        name += f"^{power}"
    sides = []
    for side in name.split("/"):
        factor = _FACTOR.fullmatch(side)
        if factor is None:
            return None
        exponent = {"square ": "2", "cubic ": "3"}.get(factor[1] or "", factor[3])
        sides.append(f"{factor[2]}^{exponent}" if exponent and exponent != "1" else factor[2])
    return "/".join(sides)


_FURTHER = (
    "unit degree radian celsius fahrenheit dollar euro yen yuan rupee pound won people men women children feet teeth "
    "mice geese fish sheep deer ohm rpm psi bit byte square cubic"
)
_KNOWN = {*_SIZES, *_ABBREVIATIONS.values(), *_CAPITALS.values(), *unit_symbols.SYMBOLS.values(), *_FURTHER.split()} - {
    "square",
    "cubic",
}
_PLURAL = re.compile(r"[a-z]{2,}(?<![su])(?<!i)s", re.I)


def is_named(unit: str, words: str) -> bool:
    """Return True if a unit is a known one, or one of the words that it is written with is a plural.

    Any other word after a number may change it: 18 bn, 18 mil, 18 impossible.

    >>> is_named("red apple", "red apples"), is_named("m/second", "m/s"), is_named("bn", "bn"), is_named("人", "人")
    (True, True, False, True)
    """
    known = not _KNOWN.isdisjoint(re.split(r"[ /·^-]", unit)) or chinese.is_unit(unit)
    return known or any(map(_PLURAL.fullmatch, re.findall("[A-Za-z]+", words)))


def is_symbol(letter: str) -> bool:
    """Return True for a unit of one letter, such as m."""
    return letter in _ONE_LETTER


def _singular(word: str) -> str:
    if word in _ABBREVIATIONS:
        return _ABBREVIATIONS[word]
    if len(word) > 2 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    return _ABBREVIATIONS.get(word, word)


def conversion(unit: str | None, other: str | None) -> Fraction | None:
    """Return how many of the unit `other` one `unit` is; None if they measure different quantities.

    >>> [str(conversion(*units)) for units in (("km", "m"), ("cm^2", "m^2"), ("m/second", "km/hour"), ("l", "cm^3"))]
    ['1000', '1/10000', '18/5', '1000']
    >>> conversion("m", "kg"), conversion("m", None), conversion("cm^2", "cm")
    (None, None, None)
    """
    if not unit or not other or PERCENT in (unit, other):
        return None
    (dimensions, size), (other_dimensions, other_size) = _measure(unit), _measure(other)
    return size / other_size if dimensions == other_dimensions else None


def _measure(unit: str) -> tuple[dict[str, int], Fraction]:
    """Return dimensions and size of a unit; an unknown name is a dimension of its own."""
    dimensions, size = Counter[str](), Fraction(1)
    for index, side in enumerate(unit.split("/")):
        name, _, exponent = side.partition("^")
        power = int(exponent or 1) * (-1 if index else 1)
        name, factor = unit_symbols.MULTIPLES.get(name, (name, Fraction(1)))
        base, one = _SIZES.get(name, ({name: 1}, Fraction(1)))
        size *= (factor * one) ** power
        for dimension, each in base.items():
            dimensions[dimension] += each * power
    return {name: power for name, power in dimensions.items() if power}, size
