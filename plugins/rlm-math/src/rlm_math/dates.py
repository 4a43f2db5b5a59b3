"""Days of the year in one notation: ``4th of July`` is ``July 4``."""

from __future__ import annotations

import re

_NAMES = "january february march april may june july august september october november december"
_MONTHS = {name[:3]: number for number, name in enumerate(_NAMES.split(), 1)}
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if name[3:] else name for name in _NAMES.split()) + "|sept"
_DAY = r"(\d{1,2})\s*(?:\^?\s*\{?\s*(?:st|nd|rd|th)\s*\}?)?"
_DATE = re.compile(rf"(?:({_MONTH})\.?\s*{_DAY}|{_DAY}\s*(?:of\s*)?({_MONTH})\.?)(?:\s*,?\s*(\d{{4}}))?", re.I)
_WRAPPED = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")


def normalized_date(text: str) -> str:
    """Return a day with its month, and its year if there is one; empty for anything else.

    >>> [normalized_date(text) for text in ("July 4", "\\\\text{4th of July}", "Jul. 4, 1776", "July", "4")]
    ['7-4', '7-4', '7-4-1776', '', '']
    """
    match = _DATE.fullmatch(_WRAPPED.sub(r" \1 ", text).strip())
    if match is None:
        return ""
    month, day = match[1] or match[4], match[2] or match[3]
    return "-".join(filter(None, (str(_MONTHS[month[:3].lower()]), str(int(day)), match[5])))
