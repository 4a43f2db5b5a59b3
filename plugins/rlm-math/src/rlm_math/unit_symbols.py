"""Symbols of units, in which capitals have a meaning, and prefixes of the SI: ``MW``, ``mW``, ``Pa``, ``pA``."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from rlm_math.unit_words import changes_number

_PREFIXES = {
    "p": ("pico", -12), "n": ("nano", -9), "m": ("milli", -3), "c": ("centi", -2), "d": ("deci", -1),
    "h": ("hecto", 2), "k": ("kilo", 3), "M": ("mega", 6), "G": ("giga", 9), "T": ("tera", 12),
}  # fmt: skip
_BASES = {
    "m": ("m", "meter metre"), "g": ("g", "gram"), "s": ("second", "second"), "l": ("l", "liter litre"), "L": ("l", ""),
    "A": ("ampere", "ampere amp"), "K": ("kelvin", "kelvin"), "N": ("newton", "newton"), "Pa": ("pascal", "pascal"),
    "J": ("joule", "joule"), "W": ("watt", "watt"), "V": ("volt", "volt"), "Hz": ("hertz", "hertz"), "Wh": ("Wh", ""),
    "mol": ("mol", "mole"), "cal": ("cal", "calorie"), "eV": ("eV", "electronvolt"), "bar": ("bar", ""),
    "F": ("farad", "farad"), "C": ("coulomb", "coulomb"), "T": ("tesla", "tesla"), "H": ("henry", "henry"),
}  # fmt: skip
"""Symbol of a unit that has prefixes → its notation here, and its names."""
_CENTI_DECI_HECTO, _METRIC = "cdh", "mglL"
"""Prefixes of these units only."""
_NO_SYMBOLS = {"pm", "TH"}
"""A time of day, and the ending of an ordinal in capitals."""
_WITHOUT_SIZE = "Nm Ns kn kB MB GB TB kb Mb Gb Tb"
"""Symbols that are not converted: a kilobyte has 1,000 or 1,024 bytes."""

SYMBOLS = {each: each for each in _WITHOUT_SIZE.split()}
"""Symbol of two letters or more → its notation here."""
NAMES: dict[str, str] = {}
"""Name of a unit in lower case → its notation here."""
MULTIPLES: dict[str, tuple[str, Fraction]] = {}
"""Unit with a prefix → the one without it, and how many of those it is."""
for _symbol, (_unit, _names) in _BASES.items():
    NAMES |= dict.fromkeys(_names.split(), _unit)
    SYMBOLS |= {_symbol: _unit} if len(_symbol) > 1 else {}
    for _prefix, (_word, _exponent) in _PREFIXES.items():
        if _prefix in _CENTI_DECI_HECTO and _symbol not in _METRIC:
            continue
        if (_multiple := _prefix + _symbol.replace("L", "l")) not in _NO_SYMBOLS:
            SYMBOLS[_prefix + _symbol] = _multiple
            MULTIPLES[_multiple] = _unit, Fraction(10) ** _exponent
            NAMES |= {f"{_word}{each}": _multiple for each in _names.split()}
_FOLDED = defaultdict[str, set[str]](set)
for _symbol, _unit in SYMBOLS.items():
    _FOLDED[_symbol.lower()].add(_unit)


def cased(part: str) -> str:
    """Return a symbol in its notation here, and a word in lower case.

    Capitals of a symbol do not matter unless they make another one of it: KM is km, but MM is neither mm nor Mm.

    >>> [cased(part) for part in ("Apples", "KM", "MM", "Mm", "MB", "KB", "Nm", "kj", "Pa", "pA", "PA")]
    ['apples', 'km', 'MM', 'Mm', 'MB', 'kB', 'Nm', 'kJ', 'pascal', 'pA', 'PA']
    """
    for written in (part, part.replace("K", "k")):
        if written in SYMBOLS:
            return SYMBOLS[written]
    lower = part.lower()
    units = _FOLDED.get(lower, set[str]())
    if not units or changes_number(lower):
        return lower
    if len(units) > 1:
        return part
    (unit,) = units
    return part if part == lower and unit[0] not in "kG" else unit  # 6 pw is no power
