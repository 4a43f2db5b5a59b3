"""Times of day and ratios in one notation: ``2:45 p.m.`` is ``14:45``."""

from __future__ import annotations

import re
from math import gcd

_WRAPPED = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_CLOCK = re.compile(r"(\d+)((?:\s*:\s*\d+)*)\s*(?:([ap])\.?\s?m\.?|(noon|midnight))?", re.I)
_RATIO = re.compile(r"\s*(\d+)\s*(?:/|to)\s*(\d+)\s*|\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}")
_NAMES = {"noon": "p", "midnight": "a"}
MAX_DIGITS = 100
"""Digits of a term of a ratio."""
NOON, HALF_DAY, DAY, MINUTES = 12, 12, 24, 60


def normalized_clock(text: str) -> str:
    """Return a time or a ratio in one notation; empty for anything else.

    >>> [normalized_clock(text) for text in ("09:05 \\\\text{ AM}", "2:45 p.m.", "noon", "3 : 5", "5 pm", "3")]
    ['9:05a', '14:45', '12:00p', '3:5', '17:00', '']
    """
    plain = _WRAPPED.sub(r" \1", text).strip()
    match = _CLOCK.fullmatch(f"12 {plain}" if plain.lower() in _NAMES else plain)
    if match is None or not any(match.groups()[1:]):
        return ""
    hour, rest, half = (
        int(match[1]),
        re.sub(r"\s", "", match[2]),
        (match[3] or _NAMES.get((match[4] or "").lower(), "")),
    )
    half, rest = half.lower(), rest if rest or not half else ":00"
    if match[4] and (hour, rest) != (NOON, ":00"):
        return ""
    if half == "p" and hour < NOON:
        return f"{hour + HALF_DAY}{rest}"
    if half == "a" and hour == NOON:
        return f"0{rest}"
    return f"{hour}{rest}{half}"


def is_time(clock: str) -> bool:
    """Return True for a text of `normalized_clock` that can be a time of day, so that it has no multiples.

    >>> [is_time(clock) for clock in ("9:05", "9:05a", "2:3", "12:60", "25:36", "3:4:5", "1:02:03", "10:20:30:40")]
    [True, True, False, False, False, False, True, False]
    """
    hour, *rest = clock.rstrip("ap").split(":")
    is_of_minutes = all(len(each) == len("00") and int(each) < MINUTES for each in rest)
    return len(hour) <= len("00") and int(hour) <= DAY and len(rest) <= len(("minute", "second")) and is_of_minutes


def are_proportional(clock: str, other: str) -> bool:
    """Return True for two ratios of integers with the same terms in lowest terms: 2:3 and 4:6.

    >>> [are_proportional("2:3", other) for other in ("4:6", "6:4", "2:3:0", "0:0", "4:06")]
    [True, False, False, False, False]
    """
    terms = [_lowest_terms(each) for each in (clock, other)]
    return terms[0] == terms[1] != []


def _lowest_terms(ratio_text: str) -> list[int]:
    """Return the terms of a ratio in lowest terms; none for a zero or a leading zero."""
    terms = ratio_text.split(":")
    if not all(term.isdecimal() and term[0] != "0" and len(term) < MAX_DIGITS for term in terms):
        return []
    divisor = gcd(*map(int, terms))
    return [int(term) // divisor for term in terms]


def ratio(text: str) -> str:
    """Return ``2/3``, ``2 to 3`` or a fraction as ``2:3``; empty for anything else."""
    match = _RATIO.fullmatch(_WRAPPED.sub(r" \1 ", text))
    return f"{match[1] or match[3]}:{match[2] or match[4]}" if match else ""
