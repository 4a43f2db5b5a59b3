"""Exact values of numerals, units in one table, and how a quantity is split into its value and its unit."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction

MAX_LENGTH = 1000
"""Largest length of a numeral in characters; it keeps exact arithmetic cheap for any completion."""
_WHOLE = r"(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.\d*)?|\.\d+)"
_SIGN = re.compile(r"([+-]?)\s*(.*)", re.S)
_PLAIN = re.compile(rf"({_DECIMAL})(?:[eE]([+-]?\d{{1,3}}))?")
_TIMES = re.compile(
    rf"(?:({_DECIMAL})\s*(?:\\times|\\cdot|\*)\s*)?10\s*\^\s*(?:\{{\s*([+-]?\d{{1,3}})\s*\}}|([+-]?\d{{1,3}}))"
)
_OVER = re.compile(rf"(?!0\d)({_DECIMAL})\s*/\s*(?!0\d)({_DECIMAL})")
_FRAC = re.compile(rf"({_WHOLE})?\s*\\frac\s*\{{\s*(-?)\s*({_DECIMAL})\s*\}}\s*\{{\s*(-?)\s*({_DECIMAL})\s*\}}")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\s*\{\s*(\d+)\s*\}")
_MIXED = re.compile(r"(\d+) (\d+)\s*/\s*(\d+)")
_SPACED = re.compile(r"[1-9]\d{0,2}(?: \d{3})+(?:\.\d+)?")


def parse_number(text: str) -> Fraction | None:
    """Return the value of a normalized numeral; None for anything that needs evaluation.

    >>> texts = ("1,000.5", "-.5", "1.2e3", "5\\\\times 10^{-9}", "2/4", "1 1/2", "0.\\\\overline{3}")
    >>> [str(parse_number(text)) for text in texts]
    ['2001/2', '-1/2', '1200', '1/200000000', '1/2', '3/2', '1/3']
    >>> parse_number("1+1"), parse_number("12,34"), parse_number("1/0"), parse_number("2^{10}"), parse_number("1 2")
    (None, None, None, None, None)
    """
    if len(text) > MAX_LENGTH:
        return None
    sign, rest = _SIGN.fullmatch(text.strip()).groups()  # type: ignore[union-attr]  # it matches everything
    try:
        value = _unsigned(rest)
    except ZeroDivisionError:
        return None
    return value if value is None or sign != "-" else -value


def _unsigned(text: str) -> Fraction | None:
    if match := _PLAIN.fullmatch(text):
        return _decimal(match[1]) * Fraction(10) ** int(match[2] or 0)
    if _SPACED.fullmatch(text):
        return Fraction(text.replace(" ", ""))
    if match := _TIMES.fullmatch(text):
        return _decimal(match[1] or "1") * Fraction(10) ** int(match[2] or match[3])
    if match := _OVER.fullmatch(text):
        return _decimal(match[1]) / _decimal(match[2])
    if match := _REPEATING.fullmatch(text):
        whole, fixed, cycle = match.groups()
        return Fraction(int(whole + fixed + cycle) - int(f"0{whole}{fixed}"), 10 ** len(fixed) * (10 ** len(cycle) - 1))
    if match := _MIXED.fullmatch(text):
        return int(match[1]) + Fraction(int(match[2]), int(match[3]))
    if match := _FRAC.fullmatch(text):
        part = _decimal(match[3]) / _decimal(match[5]) * (-1 if match[2] != match[4] else 1)
        if match[1] is None:
            return part
        return _decimal(match[1]) + part if 0 <= part < 1 else None
    return None


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", "").removesuffix("."))


def numeral(value: Fraction) -> str:
    """Return the LaTeX of a rational number.

    >>> numeral(Fraction(21)), numeral(Fraction(-2, 3))
    ('21', '-\\\\frac{2}{3}')
    """
    if value.denominator == 1:
        return str(value.numerator)
    return f"{'-' if value < 0 else ''}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


PERCENT = "%"
Unit = str
"""A unit in one notation: ``m/second^2``; ``%`` and ``degree`` are units too."""

_PREFIXES = {"": 0, "p": -12, "n": -9, "\\mu": -6, "m": -3, "c": -2, "d": -1, "h": 2, "k": 3, "M": 6, "G": 9, "T": 12}
_WORDS_OF_PREFIXES = {"nano": "n", "milli": "m", "centi": "c", "deci": "d", "hecto": "h", "kilo": "k", "mega": "M"}
_WORDS_OF_PREFIXES |= {"micro": "\\mu", "giga": "G", "tera": "T", "pico": "p"}
# name → (size, dimensions); names in one cell are one unit, and those after a bar have no prefix
_TABLE = """
m meter metre: 1 m | g gram gramme: 1 g | s second sec: 1 s | A ampere amp: 1 A | K kelvin: 1 K | mol mole: 1 mol
l L liter litre: 1/1000 m3 | N newton: 1000 g m s-2 | J joule: 1000 g m2 s-2 | W watt: 1000 g m2 s-3
Pa pascal: 1000 g m-1 s-2 | V volt: 1000 g m2 s-3 A-1 | Hz hertz: 1 s-1 | C coulomb: 1 A s | T tesla: 1000 g s-2 A-1
F farad: 1/1000 g-1 m-2 s4 A2 | H henry: 1000 g m2 s-2 A-2 | Ohm ohm \\Omega: 1000 g m2 s-3 A-2 | cal calorie: 1 cal
eV electronvolt: 1 eV | Wh: 3600000 g m2 s-2 | bar: 100000000 g m-1 s-2
"""
_WITHOUT_PREFIX = """
in inch inche: 127/5000 m | ft foot feet: 381/1250 m | yd yard: 1143/1250 m | mi mile: 201168/125 m
acre: 316160658/78125 m2 | hectare ha: 10000 m2 | cc: 1/1000000 m3 | oz ounce: 45359237/1600000 g
lb pound: 45359237/100000 g | ton tonne: 1000000 g | min minute: 60 s | h hr hour: 3600 s | day: 86400 s
week: 604800 s | fortnight: 1209600 s | month: 1 month | yr year: 12 month | decade: 120 month
century centurie: 1200 month | cent ¢: 1/100 dollar | dollar usd: 1 dollar | mph: 1397/3125 m s-1
kmh kph kmph: 5/18 m s-1 | degree deg: 1 degree | radian rad: 1 radian | celsius: 1 celsius | fahrenheit: 1 fahrenheit
euro eur: 1 euro | gbp: 1 gbp | yen: 1 yen | yuan: 1 yuan | rupee rs: 1 rupee | people person: 1 person
unit: 1 unit | way: 1 way | men man: 1 man | women woman: 1 woman | children child: 1 child | point: 1 point
rpm: 1 rpm | psi: 1 psi | kB: 1 kB | MB: 1 MB | GB: 1 GB | TB: 1 TB | bit: 1 bit | byte: 1 byte
student: 1 student | inches: 127/5000 m
"""


def _read_table() -> dict[str, tuple[Fraction, dict[str, int]]]:
    units: dict[str, tuple[Fraction, dict[str, int]]] = {}
    for table, prefixes in ((_WITHOUT_PREFIX, {"": 0}), (_TABLE, _PREFIXES)):
        for cell in re.split(r"[|\n]", table.strip()):
            names, _, measure = cell.partition(":")
            size, *dimensions = measure.split()
            powers = {re.sub(r"-?\d+$", "", each): int((re.findall(r"-?\d+$", each) or [1])[0]) for each in dimensions}
            for prefix, exponent in prefixes.items():
                words = [word for word, symbol in _WORDS_OF_PREFIXES.items() if symbol == prefix]
                for name in names.split():
                    is_word = len(name) > 3 and name.islower()
                    for each in (words if prefix else [""]) if is_word else [prefix]:
                        units.setdefault(each + name, (Fraction(size) * Fraction(10) ** exponent, powers))
    return units


UNITS = _read_table()
_SPELLINGS = Counter(name.lower() for name in UNITS)
_LOWER = {
    name.lower(): name
    for name in UNITS
    if len(name) > 1 and name[-1] != "B" and name != "pm" and _SPELLINGS[name.lower()] == 1
}
_CURRENCIES = {"\\$": "dollar", "USD": "dollar", "€": "euro", "EUR": "euro", "£": "gbp", "GBP": "gbp", "¥": "yen"}
_CURRENCIES |= {"₹": "rupee", "Rs.": "rupee", "¢": "cent"}
_CURRENCY = "|".join(map(re.escape, _CURRENCIES))
_PRICE = re.compile(rf"(-?)\s*({_CURRENCY})\s*(.+)|(.+?)\s*({_CURRENCY})", re.S)
_SHARE = re.compile(r"([^%]*?)\s*\\?%", re.S)
_CIRCLE = r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)\s*"
_DEGREES = re.compile(rf"(.*?){_CIRCLE}(?:(?:\\(?:text|mathrm)\s*\{{)?\s*([CF])\s*\}}?)?", re.S)
_MINUTES = re.compile(
    rf"(-?)\s*(\d+){_CIRCLE}(\d[\d.]*)\s*(?:'|\^\s*\{{?\s*\\prime\s*\}}?)"
    r"(?:\s*(\d[\d.]*)\s*(?:''|\"|\^\s*\{\s*\\prime\s*\\prime\s*\}))?"
)
_TRIGONOMETRIC = re.compile("sin|cos|tan|cot|sec|csc|cis")
_WRAPPED = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_INSIDE = r"\1"
_QUOTIENT = re.compile(r"\\frac\s*\{((?:[^{}0-9]|\^\d|\{[^{}]*\})*)\}\s*\{((?:[^{}0-9]|\^\d|\{[^{}]*\})*)\}$")
_TAIL = re.compile(
    r"(?P<value>.+?)\s*(?P<unit>\x01[\x01\x02A-Za-z \\/.·*^{}()\d-]*"
    r"|(?<=[\d})\].\s])(?:[A-Za-z]|\\(?:Omega|mu))[A-Za-z \\/.·*^{}()\d-]*)",
    re.S,
)
"""A value and the words after it; \x01 and \x02 are the ends of a command for text."""
_POWER = r"(?:\s*\^\s*\{?\s*(-?\d)\s*\}?)?"
_WORD = re.compile(rf"\s*(\\[A-Za-z]+|[A-Za-z][A-Za-z-]*|¢){_POWER}")
_JOIN = re.compile(r"\s*(?:(/|per\b)|\\cdot|[·*.-]|(?=[\sA-Za-z\\]))\s*")
_PLURAL = re.compile(r"[A-Za-z-]{2,}(?<![suSU])(?<!i)s|people|ways?")
_NO_UNIT = re.compile(
    r"(?:or|and|not|no|but|never|wrong|twice|double|negative|opposite|reciprocal|cube|root|unless|pm|if|is|to|minus|plus|times|than|less|more|about|around|perhaps|maybe|always|sometimes|percent"
    r"|.*[a-z]ly|.*illions?|hundreds?|thousands?|dozens?|scores?|hal(?:f|ves?)|thirds?|quarters?|.*(?:(?:four|fif|six|seven|eigh|nin|ten|leven|elf|teen|tie|dred|sand|ion)th|teen|ty)s?"
    r"|ones?|twos?|threes?|fours?|fives?|six(?:es?)?|sevens?|eights?|nines?|tens?|zero(?:e?s)?|basis|mods?|square"
    r"|factorials?|logs?|sins?|.*folds?|others?|lakhs?|crores?)",
    re.I,
)
"""Words that change the number beside them, or take it back."""
_PARTS = re.compile(r"\s*(?:,(?!\d{3}(?!\d))|;|\\text\s*\{\s*,?\s*and\s*\}|(?<![A-Za-z])and(?![A-Za-z]))+\s*")


def changes_number(word: str) -> bool:
    """Return True for a word that changes the number beside it, or takes it back: ``half``, ``not``."""
    return _NO_UNIT.fullmatch(word) is not None


def split(text: str, expected: Unit | None = None, *, is_reference: bool = False) -> tuple[str, Unit | None]:
    """Return (value, unit) of a normalized text. The unit is None if there is none, or a word changes the number.

    A single letter is a variable, unless it is the unit that is `expected`: 18 m for 18 meters. Any words in a command
    for text after the number of a reference are its unit.

    >>> split(r"4\\text{ cm}"), split("90^\\\\circ"), split(r"\\$5"), split("50\\\\%"), split("3 xy")
    (('4', 'cm'), ('90', 'degree'), ('5', 'dollar'), ('50', '%'), ('3 xy', None))
    >>> split(r"4\\text{ million}"), split(r"4\\text{ metres}"), split("2x"), split("5 cm^2")
    (('4\\\\text{ million}', None), ('4', 'metre'), ('2x', None), ('5', 'cm^2'))
    """
    if match := _SHARE.fullmatch(text):
        return match[1], PERCENT
    is_single = text.count("\\circ") == 1 and not _TRIGONOMETRIC.search(text)
    if is_single and (match := _DEGREES.fullmatch(text)):
        return match[1], {"C": "celsius", "F": "fahrenheit", None: "degree"}[match[2]]
    if match := _MINUTES.fullmatch(text):
        sign, *parts = match.groups()
        degrees = sum(Fraction(part or 0) / 60**k for k, part in enumerate(parts))
        return numeral(-degrees if sign else degrees), "degree"
    if match := _PRICE.fullmatch(text):
        value, currency = (f"{match[1]}{match[3]}", match[2]) if match[3] else (match[4], match[5])
        return value, _CURRENCIES[currency]
    if not re.search("[A-Za-z¢%]", text):
        return text, None
    if compound := _sum(_WRAPPED.sub(" \\1 ", text)):
        return compound
    parts = [
        part.strip() for part in _PARTS.split(re.sub(r"(\\text\s*\{\s*[^{}\s][^{}]*?),?\s+and\s*\}", r"\1},", text))
    ]
    if len(parts) > 1:
        each = [split(part, expected) for part in parts]
        is_list = each[0][1] is not None and len({unit for _, unit in each}) == 1
        is_list = is_list and all(parse_number(value) is not None for value, _ in each)
        return ("; ".join(value for value, _ in each), each[0][1]) if is_list else (text, None)
    return _split_words(text, expected, is_reference)


def _split_words(text: str, expected: Unit | None, is_reference: bool) -> tuple[str, Unit | None]:
    joined = _QUOTIENT.sub(lambda match: rf"\text{{{_WRAPPED.sub(_INSIDE, '/'.join(match.groups()))}}}", text)
    marked = _WRAPPED.sub("\x01\\1\x02", joined)
    match = _TAIL.fullmatch(marked)
    if match is None:
        return text, None
    value, words = match["value"], match["unit"]
    if "\x01" in value or not re.search(r"\w", value):
        return text, None
    is_wrapped = words[0] == "\x01"
    unit = canonical_unit(re.sub("[\x01\x02]", " ", words), is_wrapped=is_wrapped)
    if unit is None and is_wrapped and re.fullmatch(r"[\x01\x02A-Za-z .-]+", words):
        plain = " ".join(re.sub(r"[\x01\x02]", " ", words).split())
        unit = plain if (is_reference and not _NO_UNIT.fullmatch(plain)) or plain == expected else None
    if unit is None or (not is_wrapped and len(unit) == 1 and unit != expected):
        return text, None
    if not is_wrapped and not re.search(r"[\d}]$", value.rstrip()):
        return text, None
    if re.search(r"[A-Za-z]$", value) and "/" not in unit and unit not in UNITS and not unit.endswith(("^2", "^3")):
        return text, None
    return value, unit


def _sum(plain: str) -> tuple[str, Unit] | None:
    """Return ``1 hour 30 minutes`` in the smaller unit; None for anything else."""
    match = re.fullmatch(r"\s*(\d[\d.]*)\s*([A-Za-z]+)\.?\s*(?:,|and)?\s*(\d[\d.]*)\s*([A-Za-z]+)\.?\s*", plain)
    if match is None:
        return None
    large, small = canonical_unit(match[2]), canonical_unit(match[4])
    factor, first, second = conversion(large, small), parse_number(match[1]), parse_number(match[3])
    if small is None or first is None or second is None or factor is None or factor <= 1 or second >= factor:
        return None
    return numeral(factor * first + second), small


def canonical_unit(words: str, *, is_wrapped: bool = True) -> Unit | None:
    """Return a unit in one notation; None if the words are not a unit, or change the number before them.

    >>> [canonical_unit(words) for words in ("km per hour", "m/s^2", "square feet", "red apples", "or more")]
    ['km/hour', 'm/s^2', 'feet^2', 'red apple', None]
    """
    words = " ".join(words.replace("\\mathrm", " ").split()).strip(" .(){}")
    if words.lower() in ("percent", "per cent", "percentage", "pct"):
        return PERCENT
    words = re.sub(
        r"\b(square|sq\.?|cubic|cu\.?) ([A-Za-z]+)", lambda m: f"{m[2]}^{'2' if m[1][0] == 's' else '3'}", words
    )
    words = re.sub(
        r"\bdegrees? (?:C|Celsius)\b", "celsius", re.sub(r"\bdegrees? (?:F|Fahrenheit)\b", "fahrenheit", words)
    )
    factors, at, sign = list[tuple[str, int]](), 0, 1
    while at < len(words) and (match := _WORD.match(words, at)):
        factors.append((match[1], sign * int(match[2] or 1)))
        joint = _JOIN.match(words, match.end())
        at = joint.end() if joint else match.end()
        sign = -1 if joint and joint[1] else 1 if joint and sign == 1 else sign
        if joint is None or joint.end() == match.end() == len(words):
            break
    if not factors or at < len(words):
        return None
    names = [_name(word) for word, _ in factors]
    if all(names):
        above = " ".join(_power(name, power) for name, (_, power) in zip(names, factors, strict=True) if power > 0)
        below = "".join(
            f"/{_power(name, -power)}" for name, (_, power) in zip(names, factors, strict=True) if power < 0
        )
        return above + below
    plain = [word for word, _ in factors]
    if any(map(changes_number, plain)) or len(plain) > 4 or len(plain[0]) < 2:
        return None
    is_plural = any(_PLURAL.fullmatch(word) and (is_wrapped or len(word) > 3) for word in plain) or any(names)
    return re.sub(r"s\b", "", " ".join(plain).lower()) if is_plural or (is_wrapped and "/" in words) else None


def _power(name: str | None, power: int) -> str:
    return f"{name}^{power}" if power != 1 else str(name)


def _name(word: str) -> str | None:
    """Return the name of a unit in the table: capitals of a symbol count where they make another unit."""
    is_word, word = len(word) > 3 and word[1:].islower(), re.sub("^K(?=[A-Zgm])", "k", word)
    for each in (word, word.removesuffix("s"), *([word.lower().removesuffix("s")] if is_word else [])):
        if each in UNITS and each != "pm" and (each == word or len(each) > 2 or each in ("hr", "yr", "lb", "kg")):
            return each
    return _LOWER.get(word.lower()) if word.isupper() or len(word) > 2 else None


def measure(unit: Unit) -> tuple[Fraction, dict[str, int]]:
    """Return size and dimensions of a unit; an unknown name is a dimension of its own."""
    size, dimensions = Fraction(1), Counter[str]()
    for index, side in enumerate(unit.split("/")):
        for factor in side.split(" ") if all(each.partition("^")[0] in UNITS for each in side.split(" ")) else [side]:
            name, _, exponent = factor.partition("^")
            power = int(exponent or 1) * (-1 if index else 1)
            one, powers = UNITS.get(name, (Fraction(1), {name: 1}))
            size *= one**power
            for dimension, each in powers.items():
                dimensions[dimension] += each * power
    return size, {name: power for name, power in dimensions.items() if power}


def conversion(unit: Unit | None, other: Unit | None) -> Fraction | None:
    """Return how many of the unit `other` one `unit` is; None if they measure different quantities.

    >>> [str(conversion(*units)) for units in (("km", "m"), ("cm^2", "m^2"), ("m/s", "km/hour"), ("l", "cm^3"))]
    ['1000', '1/10000', '18/5', '1000']
    >>> conversion("m", "kg"), conversion("m", None), conversion("N", "kg m/s^2") == 1
    (None, None, True)
    """
    if not unit or not other or PERCENT in (unit, other):
        return None
    (size, dimensions), (other_size, other_dimensions) = measure(unit), measure(other)
    return size / other_size if dimensions == other_dimensions else None
