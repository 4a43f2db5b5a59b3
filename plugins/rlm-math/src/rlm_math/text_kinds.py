"""Words, letters of options, times of day and numerals with a base: compared as text in one notation each."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

Kind = Literal["number", "letter", "words", "clock", "base", "long", "formula"]
WRAPPED = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s*)?\(?\s*([A-Z])\s*[).:]?")
_CLOCK = re.compile(r"([01]?\d|2[0-4])(?::(\d\d))?(?::(\d\d))?\s*(?:([ap])\.?\s?m\.?)?", re.I)
_IN_BASE = re.compile(
    r"[({\s]*([0-9A-Fa-f]+)[)}\s]*_\s*\{?\s*\(?\s*(\d+|two|three|four|five|six|seven|eight|nine)\s*\)?\s*\}?"
)
_BASES = dict(zip("two three four five six seven eight nine".split(), "23456789", strict=True))  # noqa: SIM905
_ARTICLE = re.compile(r"(?:an?|the) (?=[a-z]-?[a-z]{2})", re.I)
_WORD = re.compile(r"[^\W\d_][^\W\d_'.,-]*(?:[ '.,-]+[^\W_][^\W_'.,-]*)*\.?")


def choice_letter(text: str) -> str:
    """Return the letter of ``A``, ``(A)`` or ``\\text{A}``; empty for anything else."""
    match = _LETTER.fullmatch(WRAPPED.sub(r"\1", text).strip())
    return match[1] if match else ""


def normalized_clock(text: str) -> str:
    """Return a time of day in one notation; empty for anything else.

    >>> [normalized_clock(text) for text in ("09:05 \\\\text{ AM}", "2:45 p.m.", "5 pm", "20:34:00", "3:5", "3")]
    ['9:05:00', '14:45:00', '17:00:00', '20:34:00', '', '']
    """
    match = _CLOCK.fullmatch(WRAPPED.sub(r" \1", text).strip())
    if match is None or not (match[2] or match[4]):
        return ""
    hour, half = int(match[1]), (match[4] or "").lower()
    hour = hour % 12 + 12 * (half == "p") if half else hour
    return f"{hour}:{match[2] or '00'}:{match[3] or '00'}"


def normalized_base(text: str) -> str:
    """Return a numeral with a base in one notation; empty for anything else. No base is converted: that is the problem.

    >>> normalized_base("(0101)_{2}"), normalized_base("3a_{16}"), normalized_base("5")
    ('101_2', '3A_16', '')
    """
    match = _IN_BASE.fullmatch(WRAPPED.sub(r"\1", text))
    if match is None:
        return ""
    return f"{match[1].upper().lstrip('0') or '0'}_{_BASES.get(match[2], match[2])}"


def normalized_words(text: str) -> str:
    """Return words in lower case; empty for a possible product of variables, or anything but words."""
    words = _ARTICLE.sub("", " ".join(WRAPPED.sub(r" \1 ", text).split()).removesuffix("."))
    if not _WORD.fullmatch(words):
        return ""
    is_certain = bool(WRAPPED.fullmatch(text)) or any(len(word) > 3 for word in re.split(r"\W+", words))
    is_certain = is_certain or bool(re.fullmatch("[IVX]{2,}|[A-Z](?=[a-z]*[aeiou])[a-z]{2}", words))
    return words.lower() if is_certain or words.lower() in ("yes", "no", "odd", "even", "dne", "all") else ""


NOTATIONS: dict[Kind, Callable[[str], str]] = {
    "letter": choice_letter,
    "clock": normalized_clock,
    "words": normalized_words,
    "base": normalized_base,
}
"""Kind of a reference that is compared as text → the one notation of it; empty if a text is not of that kind."""
