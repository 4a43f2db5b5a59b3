"""Check of numbers in answers, because some scorers accept constants: by an absolute tolerance, or as "nan"."""

from __future__ import annotations

import cmath
import re
from fractions import Fraction

TOLERANCE = Fraction(1, 100)
"""Largest relative error of a number, beside the scorer's own tolerance."""
MAX_DIGITS = 1000
_NOT_FINITE = re.compile(r"(?<![a-z])(nan|inf|infinity)j?(?![a-z])", re.IGNORECASE)

Number = Fraction | complex


def number(text: str) -> Number | None:
    """Parse a real or complex number: ``3/4``, ``1,000.5``, ``2 - 3i``; None otherwise.

    >>> number("3/4"), number("1,000"), number("2 - 3i"), number("a"), number("nan")
    (Fraction(3, 4), Fraction(1000, 1), (2-3j), None, None)
    """
    plain = "".join(text.split()).replace(",", "")
    if len(plain) > MAX_DIGITS or re.search(r"[eE][+-]?\d{4}", plain):
        return None
    try:
        return Fraction(plain)
    except (ValueError, ZeroDivisionError):
        pass
    try:
        value = complex(plain.strip("()").lower().replace("i", "j"))
    except ValueError:
        return None
    return value if cmath.isfinite(value) else None


def is_plausible(answer: str, reference: str) -> bool:
    """Return False for an answer that differs from a numeric reference, or has a "nan" that the reference lacks.

    >>> is_plausible("0", "0.03"), is_plausible("nan", "1 + 2i"), is_plausible("0.0312", "0.03125")
    (False, False, True)
    """
    if _NOT_FINITE.search(answer) and not _NOT_FINITE.search(reference):
        return False
    value, expected = number(answer), number(reference)
    if value is None or expected is None:
        return True  # the scorer decides
    if isinstance(value, Fraction) and isinstance(expected, Fraction):
        return abs(value - expected) <= TOLERANCE * abs(expected)
    try:
        return abs(complex(value) - complex(expected)) <= float(TOLERANCE) * abs(complex(expected))
    except OverflowError:
        return False
