"""Answers in words: numbers, "no solution", "all real numbers", and what is put around an answer."""

from __future__ import annotations

import re

from rlm_math.number_words import parse_number_words
from rlm_math.numerals import numeral, parse_number
from rlm_math.unit_names import canonical_unit

_WRAPPER = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_WHOLE_TEXT = re.compile(r"\\text\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_INTRODUCTION = re.compile(
    r"(?:\\text\s*\{\s*)?(?:(?:the )?(?:final )?answer(?: is\b|:|=|(?=[\s}]*\(?[A-H]\)?\s*\}?$))[\s:]*"
    r"|故?答案[是为:]+|故?选:?(?=\s*\}?\s*\(?[A-H])|共有?(?=\s*\}?\s*\d))\s*\}?",
    re.I,
)
_REMARK = re.compile(
    r"(?P<a>[-\d.,]+)\s*(?:\\text\s*\{\s*)?\(\s*(?:\\text\s*\{)?\s*(?P<words>[A-Za-z][A-Za-z -]*?)\s*\}?\s*\)\s*\}?"
    r"|(?:\\text\s*\{\s*)?(?P<first>[A-Za-z][A-Za-z -]*?)\s*\}?\s*\(\s*(?P<b>[-\d.,]+)\s*\)\s*\}?"
)
"""A number with itself in words: ``5 (five)``."""
_POINT = re.compile(
    r"(?:\\text\s*\{\s*)?(?:the )?(?:ordered )?(?P<noun>point|vertex|center|midpoint|vector|pair|triple|coordinates|"
    r"interval|focus|solution|intersection)s?\s*:?\s*\}?\s*(?=[A-Z]?\s*[(\[]|\\langle)",
    re.I,
)
_LETTERS = re.compile(r"[A-H](?:\s*,\s*[A-H])*,? and [A-H]")
_QUOTED = re.compile(r"([\"`*]+)(.+)\1", re.S)
_IN_Z = r"[a-z]\s*\\in\s*\\mathbb\s*\{?\s*Z\s*\}?"
_INTEGER_PARAMETER = re.compile(
    rf"\s*,?\s*(?:\(\s*{_IN_Z}\s*\)|(?:\\text\s*\{{[^{{}}]*\}}|where|for)?\s*{_IN_Z}"
    r"|\\text\s*\{[ ,]*(?:where|for|with)\s*\}\s*[a-z]\s*\\text\s*\{\s*(?:is )?(?:an|any)\s+integer\s*\}"
    r"|\\text\s*\{[ ,]*for (?:any |all |every |some )?integers?\s*\}\s*[a-z])\s*"
)
_PARAMETER = re.compile(r"(?<![A-Za-z\\])[a-z](?![A-Za-z])")
_ORDER = r"(?:<|>|\\(?:leq?|geq?|lt|gt|neq?|leqslant|geqslant)(?![A-Za-z]))"
_REAL = r"[a-z]\s*\\in\s*\\mathbb\s*\{?\s*R\s*\}?"
_WHICH = r"(?:an?|any|all|some|every|arbitrary|real|constants?|numbers?| )+"
_CONSTANT = re.compile(
    rf"\s*,?\s*(?:\\text\s*\{{[ ,]*(?:for|where|with) {_WHICH}\}}\s*(?:{_REAL}|[a-z])"
    rf"|(?:\\text\s*\{{[ ,]*(?:for|where|with)\s*\}}\s*)?(?:{_REAL}|[a-z]\s*\\text\s*\{{ is {_WHICH}\}})"
    rf"|\(\s*{_REAL}\s*\))\s*$"
)
"""Declaration of a real constant, at the end of a function."""
_FUNCTION_OF_X = re.compile(r"[A-Za-z]\s*\(\s*[a-z]\s*\)\s*=")
_INDEX = re.compile(r"\s*,?\s*\(?\s*n\s*\\in\s*(?:\\mathbb\s*\{?\s*)?N\s*\}?\s*(?:[\^_]\s*\{?\s*[*+]\s*\}?)?\s*\)?\s*$")
_MULTIPLES = re.compile(r"\\\{\s*([a-z])\s*(?:\\mid|\||:)\s*(\1\s*=[^{}]*(?:\{[^{}]*\}[^{}]*)*)\\\}")
_LEADING_EQUALS = re.compile(r"^\s*=(?!=)\s*(?=[^\s<>])")
_PRICE = re.compile(r"(-?\s*(?:\\\$|[€£¥₹])\s*)(.+)")
_SOLUTION = r"solutions?(?: exists?)?"
_INFINITELY_MANY = r"\text{infinitely many}"
_PHRASES = {
    rf"(?:there (?:is|are) )?no {_SOLUTION}|none|(?:the )?(?:empty|null) set": r"\emptyset",
    rf"(?:there (?:is|are) )?no real {_SOLUTION}": r"\text{no real solution}",
    r"(?:the limit )?(?:does not exist|doesn't exist)|dne": r"\text{does not exist}",
    r"infinitely many(?: solutions)?|infinite solutions|an infinite number(?: of solutions)?": _INFINITELY_MANY,
    r"(?:positive |plus )?infinity": r"\infty",
    r"(?:negative|minus) infinity": r"-\infty",
    r"(?:all|the set of(?: all)?)(?: the)? real(?:s| numbers?| values?)(?: x| of x)?": r"\mathbb{R}",
    r"(?:all|the set of(?: all)?)(?: the)? integers": r"\mathbb{Z}",
}
_KNOWN = [(re.compile(pattern), answer) for pattern, answer in _PHRASES.items()]
_MOST_WORDS = 30


def introduction(text: str) -> str:
    """Return the noun before a tuple: the vertex of ``\\\\text{Vertex }(1,2)``; empty if there is none."""
    match = _POINT.match(text)
    return match["noun"].lower() if match else ""


def plain_answer(text: str, *, has_name: bool = False) -> str:
    """Return a normalized answer without quotation marks and introduction, and with words in LaTeX where they have one.

    After a name, which was removed from the text (`has_name`), the domain of a parameter stays.

    >>> [plain_answer(text) for text in (r"\\text{twenty-one}", "three apples", r"\\text{No solutions}", "'x'")]
    ['21', '3\\\\text{ apples}', '\\\\emptyset', "'x'"]
    """
    text = text.removesuffix("\\\\").strip()
    if quoted := _QUOTED.fullmatch(text):
        text = quoted[2].strip()
    inside = _WHOLE_TEXT.fullmatch(text)
    if inside and (
        re.search(r"[=\\]|^[^A-Za-z]*$", inside[1]) or _INTRODUCTION.match(inside[1]) or _LETTERS.fullmatch(inside[1])
    ):
        text = inside[1].strip()
    text = _without_remark(_POINT.sub("", text, count=1) if _POINT.match(text) else text)
    text = _INTRODUCTION.sub("", text, count=1).strip() if _INTRODUCTION.match(text) else text
    return _from_words(text if has_name else _without_domain(_LEADING_EQUALS.sub("", text)))


def _without_remark(text: str) -> str:
    """Return ``5 (five)`` as 5; a number with another one in words as it is."""
    match = _REMARK.fullmatch(text)
    if match is None:
        return text
    number, value = match["a"] or match["b"], parse_number_words(match["words"] or match["first"])
    return number if value is not None and parse_number(number) == value else text


def integer_parameter(text: str) -> str:
    """Return the parameter that a text declares to be any integer: the n of ``n\\\\pi, n \\\\in \\\\mathbb{Z}``."""
    domains = [match[0] for match in _INTEGER_PARAMETER.finditer(text)]
    name = _PARAMETER.search(domains[0]) if len(domains) == 1 else None
    return "" if name is None or _is_bounded(domains[0], text) else name[0]


def _without_domain(text: str) -> str:
    """Return a text without the domain of its integer parameter, or of the index of a sequence."""
    without = _INTEGER_PARAMETER.sub(lambda match: match[0] if _is_bounded(match[0], text) else "", text)
    if without != text and (solutions := _MULTIPLES.fullmatch(without)):
        return solutions[2].strip()
    if _FUNCTION_OF_X.match(text):
        without = _CONSTANT.sub("", without)
    if re.match(r"[A-Za-z]_\{?\s*n\s*\}?\s*=", text):
        without = _INDEX.sub("", without)
    return without or text


def _is_bounded(domain: str, text: str) -> bool:
    """Return True if a domain restricts the answer: that of a side of an inequality, or of a function's constant."""
    name = _PARAMETER.search(domain)
    if name and (function := _FUNCTION_OF_X.match(text)) and name[0] not in function[0].partition("(")[2]:
        return True
    side = rf"(?<![\w\\]){name[0]}" if name else ""
    return bool(re.search(rf"{side}\s*{_ORDER}|{_ORDER}\s*{side}\s*(?:$|[^\s\w+\\^-]|\\(?:text|mid))", text))


def _from_words(text: str) -> str:
    price = _PRICE.fullmatch(text)
    currency, rest = (price[1], price[2]) if price else ("", text)
    words = " ".join(_WRAPPER.sub(r" \1 ", rest).split()).removesuffix(".")
    if not re.search("[A-Za-z]{3}", words) or not re.fullmatch(r"[+-]?[\d.,]*[A-Za-z' -]+", words):
        return text
    for pattern, answer in _KNOWN:
        if not currency and pattern.fullmatch(words.lower()):
            return answer
    each = words.split()
    if len(each) > _MOST_WORDS:
        return text
    value = parse_number_words(words)
    if value is not None:
        return currency + numeral(value)
    for count in range(min(len(each) - 1, 8), 0, -1):
        number, unit = parse_number_words(" ".join(each[:count])), " ".join(each[count:])
        if number is not None:
            is_one_number = not any(parse_number_words(word) for word in each[count:])
            is_cut_off = unit == "point" and number != 1  # a decimal without its places
            is_quantity = not is_cut_off and number.denominator == 1 and is_one_number and canonical_unit(unit)
            return f"{currency}{numeral(number)}\\text{{ {unit}}}" if is_quantity else text
    return text
