"""Binomial coefficients in other notations: ``C(10,3)``, ``C_{10}^{3}`` and ``{}^{10}C_3`` are ``\\binom{10}{3}``."""

from __future__ import annotations

import re

_C = r"(?:\\(?:mathrm|text)\s*\{\s*C\s*\}|C)"
_N = r"(?:\{\s*(\w+(?:\s*[+-]\s*\w+)?)\s*\}|(\w))"
_NOTATIONS = [
    re.compile(rf"{_C}\s*\(\s*(\w+(?:\s*[+-]\s*\w+)?)\s*,\s*(\w+(?:\s*[+-]\s*\w+)?)\s*\)"),
    re.compile(rf"{_C}\s*_\s*{_N}\s*\^\s*{_N}"),
    re.compile(rf"(?:\{{\s*\}})?\s*[\^_]\s*{_N}\s*{_C}\s*_\s*{_N}"),
]
_COUNTS = re.compile(r"!|\\binom(?![A-Za-z])")
_WHOLE = re.compile(r"(?<![\\A-Za-z])[kmnr](?![A-Za-z])")


def in_binomials(text: str) -> str:
    """Return a text with ``\\\\binom`` for other notations of a binomial coefficient.

    >>> [in_binomials(text) for text in ("C(10,3)", "C_{10}^3", "{}^{10}C_3", "_nC_k+1")]
    ['\\\\binom{10}{3}', '\\\\binom{10}{3}', '\\\\binom{10}{3}', '\\\\binom{n}{k}+1']
    """
    for notation in _NOTATIONS:
        text = notation.sub(_binomial, text)
    return text


def is_combination(text: str) -> bool:
    """Return True for ``C(5,2)``: C before other coordinates is the name of a point."""
    return _NOTATIONS[0].fullmatch(text) is not None


def _binomial(match: re.Match[str]) -> str:
    above, below = (each for each in match.groups() if each)
    return f"\\binom{{{above}}}{{{below}}}"


def has_counts(text: str) -> bool:
    """Return True for a reference with binomials, factorials, or a variable that is an integer by its name.

    Answers to it may have binomials and factorials; elsewhere they restate a problem.
    """
    return bool(_COUNTS.search(text) or _WHOLE.search(re.sub(r"\\(?:text|mathrm)\s*\{[^{}]*\}", "", text)))
