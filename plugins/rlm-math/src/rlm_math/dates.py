"""Days of the year in one notation: ``4th of July`` and 7月4日 are ``July 4``."""

from __future__ import annotations

import re

_NAMES = "january february march april may june july august september october november december"
_MONTHS = {name[:3]: number for number, name in enumerate(_NAMES.split(), 1)}
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if name[3:] else name for name in _NAMES.split()) + "|sept"
_DAY = r"(\d{1,2})\s*(?:\^?\s*\{?\s*(?:st|nd|rd|th)\s*\}?)?"
_DATE = re.compile(
    rf"(?:the\s+)?(?:({_MONTH})\.?\s*{_DAY}|{_DAY}\s*(?:of\s*)?({_MONTH})\.?)(?:\s*,?\s*(\d{{4}}))?", re.I
)
MONTHS, DAYS = 12, 31
_IN_DIGITS = re.compile(r"(\d{4})([-/])(\d\d)\2(\d\d)()|(?:(\d{4})\s*年\s*)?(\d{1,2})\s*月\s*(\d{1,2})\s*[日号]")
_WRAPPED = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")


def normalized_date(text: str) -> str:
    """Return a day with its month, and its year if there is one; empty for anything else.

    >>> [normalized_date(text) for text in ("July 4", "\\\\text{4th of July}", "Jul. 4, 1776", "July", "4")]
    ['7-4', '7-4', '7-4-1776', '', '']
    >>> [normalized_date(text) for text in ("1776-07-04", "7月4日", "1776-77-04")]
    ['7-4-1776', '7-4', '']
    """
    plain = _WRAPPED.sub(r" \1 ", text).strip()
    if match := _IN_DIGITS.fullmatch(plain):
        year, month, day = match[1] or match[6], int(match[3] or match[7]), int(match[4] or match[8])
        return _joined(month, day, year) if 0 < month <= MONTHS and 0 < day <= DAYS else ""
    match = _DATE.fullmatch(plain)
    return _joined(_MONTHS[(match[1] or match[4])[:3].lower()], int(match[2] or match[3]), match[5]) if match else ""


def _joined(month: int, day: int, year: str | None) -> str:
    return f"{month}-{day}-{year}" if year else f"{month}-{day}"
