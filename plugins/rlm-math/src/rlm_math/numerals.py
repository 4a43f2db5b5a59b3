"""Numbers written out: their exact value, without evaluating anything."""

from __future__ import annotations

import re
from fractions import Fraction

LONGEST = 1000
"""Characters beyond which a text is no numeral; keeps exact arithmetic cheap whatever a model writes."""

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.\d*)?|\.\d+)"
_POWER = r"10\s*\^\s*(?:\{\s*([+-]?\d{1,3})\s*\}|([+-]?\d{1,3}))"
_SIGN = re.compile(r"([+-]?)\s*(.*)", re.S)
_PLAIN = re.compile(rf"({_DECIMAL})(?:[eE]([+-]?\d{{1,3}}))?")
_TIMES = re.compile(rf"(?:({_DECIMAL})\s*(?:\\times|\\cdot|\*)\s*)?{_POWER}")
_OVER = re.compile(rf"({_DECIMAL})\s*/\s*({_DECIMAL})")
_FRAC = re.compile(rf"({_WHOLE})?\s*\\frac\s*\{{\s*(-?)\s*({_DECIMAL})\s*\}}\s*\{{\s*(-?)\s*({_DECIMAL})\s*\}}")
_REPEATING = re.compile(r"(\d+)\.(\d*)\\(?:overline|bar|dot)\s*\{\s*(\d+)\s*\}")
_MIXED = re.compile(r"(\d+) (\d+)\s*/\s*(\d+)")


def number(text: str) -> Fraction | None:
    """The value of a numeral as `tidy` leaves it; None for everything that would have to be worked out.

    >>> [str(number(t)) for t in ("1,000.5", "-.5", "1.2e3", "5\\\\times 10^{-9}", "2/4", "1 1/2", "0.\\\\overline{3}")]
    ['2001/2', '-1/2', '1200', '1/200000000', '1/2', '3/2', '1/3']
    >>> number("1+1"), number("12,34"), number("1/0"), number("2^{10}"), number("1 2")
    (None, None, None, None, None)
    """
    if len(text) > LONGEST:
        return None
    sign, rest = _SIGN.fullmatch(text.strip()).groups()  # type: ignore[union-attr]  # it matches everything
    try:
        value = _unsigned(rest)
    except ZeroDivisionError:
        return None
    return value if value is None or sign != "-" else -value


def _unsigned(text: str) -> Fraction | None:
    if found := _PLAIN.fullmatch(text):
        return _decimal(found[1]) * Fraction(10) ** int(found[2] or 0)
    if found := _TIMES.fullmatch(text):
        return _decimal(found[1] or "1") * Fraction(10) ** int(found[2] or found[3])
    if found := _OVER.fullmatch(text):
        return _decimal(found[1]) / _decimal(found[2])
    if found := _REPEATING.fullmatch(text):
        whole, fixed, cycle = found.groups()
        return Fraction(int(whole + fixed + cycle) - int(whole + fixed), 10 ** len(fixed) * (10 ** len(cycle) - 1))
    if found := _MIXED.fullmatch(text):
        return int(found[1]) + Fraction(int(found[2]), int(found[3]))
    if found := _FRAC.fullmatch(text):
        part = _decimal(found[3]) / _decimal(found[5]) * (-1 if found[2] != found[4] else 1)
        if found[1] is None:
            return part
        return None if part < 0 or not part < 1 else _decimal(found[1]) + part
    return None


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", "").removesuffix("."))


def exactly(text: str) -> str:
    """`text` with its decimals as fractions, so that nobody downstream rounds them.

    >>> exactly("0.5x + 2.0")
    '\\\\frac{5}{10}x + \\\\frac{20}{10}'
    """

    def fraction(match: re.Match[str]) -> str:
        return f"\\frac{{{int(match[1] + match[2])}}}{{{10 ** len(match[2])}}}"

    return re.sub(r"(?<![\d,.])(\d*)\.(\d+)(?![\d.\\])", fraction, text)


def near(a: Fraction, b: Fraction, tolerance: float, relative: float) -> bool:
    """Whether `a` is `b`, or at most the absolute `tolerance`, or the share `relative` of `b`, away from it.

    >>> near(Fraction("3.14"), Fraction("3.15"), 0.01, 0.0), near(Fraction(99), Fraction(100), 0.0, 0.005)
    (True, False)
    """
    # through their decimal notation, so that 0.01 is a hundredth and not the float below it
    reach = max(Fraction(repr(tolerance)), Fraction(repr(relative)) * abs(b))
    return abs(a - b) <= reach
