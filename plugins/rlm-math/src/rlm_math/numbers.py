"""Exact values of numerals, without evaluating expressions."""

from __future__ import annotations

import re
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
