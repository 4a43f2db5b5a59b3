"""Several options of one answer in one notation: ``CDA`` is ``A, C and D``, and ①③ is ``(1), (3)``."""

from __future__ import annotations

import re

_WRAPPED = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_LABEL = re.compile(r"\(\s*([A-H]|\d{1,2})\s*\)|([A-H]|(?:I{1,3}|IV|V)(?![A-Za-z]))")
_BETWEEN = re.compile(r"(?:[\s,;]|and\b|\\\{|\\\})*")


def normalized_labels(text: str) -> str:
    """Return two or more letters, or numbers in brackets, in order; empty for anything else.

    >>> [normalized_labels(text) for text in ("CDA", "A, C and D", "\\\\{A,C,D\\\\}", "(3)(1)", "AAB", "A or B", "13")]
    ['A,C,D', 'A,C,D', 'A,C,D', '1,3', '', '', '']
    """
    plain = _WRAPPED.sub(r" \1 ", text)
    found, at = [], _BETWEEN.match(plain).end()  # type: ignore[union-attr]  # it matches everything
    while label := _LABEL.match(plain, at):
        found.append(label[1] or label[2])
        at = _BETWEEN.match(plain, label.end()).end()  # type: ignore[union-attr]
    is_of_one_kind = len({each.isdecimal() for each in found}) == 1
    is_list = at == len(plain) and len(found) == len({*found}) > 1
    return ",".join(sorted(found, key=lambda label: (len(label), label))) if is_list and is_of_one_kind else ""
