r"""Notations without a value, in one spelling, as they are compared as text: ``P(A \mid B)``, ``A \cup B``."""

from __future__ import annotations

import re

_SYNONYMS = {
    "\\lnot": "\\neg", "\\vert": "\\mid", "|": "\\mid", "\\|": "\\parallel", "\\bot": "\\perp",
    "\\rightarrow": "\\to", "\\implies": "\\Rightarrow", "\\Longrightarrow": "\\Rightarrow",
    "\\Leftrightarrow": "\\iff", "\\wedge": "\\land", "\\vee": "\\lor", "\\backslash": "\\setminus",
}  # fmt: skip
_OPERATORS = {
    *("\\neg", "\\mid", "\\parallel", "\\perp", "\\to", "\\Rightarrow", "\\iff", "\\cup", "\\cap", "\\setminus"),
    *("\\triangle", "\\circ", "\\subset", "\\subseteq"),
}
"""Commands of which one must occur: formulas without them are evaluated."""
_COMMUTATIVE = ("\\cup", "\\cap")
_TOKEN = re.compile(r"\s*(\\[A-Za-z]+|\\\||[A-Za-z]|[()'|])")
_GROUPED = re.compile(r"\{\s*([A-Za-z]+)\s*\}")
_BAR = re.compile(r"(?<!\\)\|")
_CONDITIONAL = re.compile(r"P\s*\(")
_REMAINDER = re.compile(r"(\d+)\s*(?:\\text\s*\{\s*)?(?:R|r|remainder)\s*\}?\s*(\d+)")


def normalized_symbols(text: str) -> str:
    r"""Return letters with operators of sets, logic or geometry, or a quotient with its remainder; empty for others.

    >>> [normalized_symbols(text) for text in (r"P(A|B)", r"B \cup A", r"\triangle{ABC}", r"7\text{ R }4", "|A|")]
    ['P ( A \\mid B )', 'A \\cup B', '\\triangle A B C', '7R4', '']
    """
    text = text.strip()
    if remainder := _REMAINDER.fullmatch(text):
        return f"{remainder[1]}R{remainder[2]}"
    plain = _GROUPED.sub(r" \1", text) if text.startswith("\\triangle") else text
    tokens, at = list[str](), 0
    while token := _TOKEN.match(plain, at):
        tokens.append(_SYNONYMS.get(token[1], token[1]))
        at = token.end()
    is_known = all(len(each) == 1 or each in _OPERATORS | {"\\land", "\\lor"} for each in tokens)
    has_bars = _BAR.search(text) and not _CONDITIONAL.match(text)  # an absolute value
    if at < len(plain) or not is_known or has_bars or text.count("\\|") > 1 or not _OPERATORS & {*tokens}:
        return ""
    joined = " ".join(tokens)
    operators = {each for each in tokens if len(each) > 1}
    for operator in _COMMUTATIVE:
        if operators == {operator} and "(" not in tokens:
            return f" {operator} ".join(sorted(part.strip() for part in joined.split(operator)))
    return joined
