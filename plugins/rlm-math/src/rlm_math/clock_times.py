"""Times of day and ratios in one notation: ``2:45 p.m.`` is ``14:45``."""

from __future__ import annotations

import re

_WRAPPED = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_CLOCK = re.compile(r"(\d+)((?:\s*:\s*\d+)*)\s*(?:([ap])\.?\s?m\.?|(noon|midnight))?", re.I)
_RATIO = re.compile(r"\s*(\d+)\s*(?:/|to)\s*(\d+)\s*|\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}")
_NAMES = {"noon": "p", "midnight": "a"}
NOON, HALF_DAY = 12, 12


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


def ratio(text: str) -> str:
    """Return ``2/3``, ``2 to 3`` or a fraction as ``2:3``; empty for anything else."""
    match = _RATIO.fullmatch(_WRAPPED.sub(r" \1 ", text))
    return f"{match[1] or match[3]}:{match[2] or match[4]}" if match else ""
