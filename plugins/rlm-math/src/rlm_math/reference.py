"""Parsing of a reference answer: a number, a multiple-choice letter, words, or a formula."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from rlm_math import chinese, units
from rlm_math.clock_times import normalized_clock
from rlm_math.dates import normalized_date
from rlm_math.groups import normalized_group
from rlm_math.labels import normalized_labels
from rlm_math.latex_normalization import normalize_latex, to_ascii
from rlm_math.numerals import MAX_LENGTH, normalized_base, parse_number
from rlm_math.phrases import integer_parameter, introduction, plain_answer
from rlm_math.quantity_names import split_label
from rlm_math.symbolic import normalized_symbols

Kind = Literal["number", "letter", "labels", "words", "clock", "date", "group", "base", "symbols", "formula"]

_GREEK = r"\\(?:alpha|beta|gamma|delta|theta|lambda|mu|rho|sigma|tau|varphi|phi|omega|xi|eta)(?![A-Za-z])"
_NAME = r"[A-Za-z]'*(?:\^\{-1\}(?=\s*[(_]))?(?:_\{?\w+\}?)?(?:\s*\(\s*[a-z](?:\s*,\s*[a-z])*\s*\))?"
_VECTOR = r"\\vec\s*(?:\{\s*[A-Za-z]{1,2}\s*\}|[A-Za-z])"
_VALUE_OF = (
    r"[fghpqFGHPT]'*\s*\(\s*-?\d+\s*\)|[nPED]\s*\(\s*[A-Z]\s*\)|\|\s*[A-Z]{1,2}\s*\|"
    rf"|\\(?:sin|cos|tan)\s*(?:(?:\\angle\s*)?[A-Z]{{1,3}}|{_GREEK})|{_VECTOR}\s*\\cdot\s*{_VECTOR}"
    r"|[a-z]\s*\(\s*[a-z]\s*\)\s*_\s*\{?\s*\\?(?:min|max)\s*\}?"
)
_ANGLE = r"m?\s*\\angle\s*[A-Z]{1,3}"
_NAMED = re.compile(
    rf"\s*(?:{_NAME}|{_GREEK}|{_VALUE_OF}|{_ANGLE}|{_VECTOR}|\\mathrm\s*(?:\{{\s*[A-Za-z]\s*\}}|[A-Za-z])|\\?[({{]\s*{_NAME}(?:\s*,\s*{_NAME})+\s*\\?[)}}])\s*=(?!=)"
)
_APPROXIMATION = re.compile(
    rf"\s*({_NAME})?\s*\\(?:approx|simeq|sim)\s*(-?\s*(?:\\\$\s*)?\d(?:(?!\\approx)[^=])*)", re.S
)
_EQUALS = re.compile(r"(?<![<>!:=])=(?!=)")
_WRAPPED = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{([^{}]*)\}")
_OTHER_WORDS = re.compile(r"(?=.*[^\W\d_A-Za-z])[^\W\d_]{2,}(?: [^\W\d_]+)*")
"""Words with letters outside ASCII."""
_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice)\s*)?\(?\s*([A-Z])\s*[).:]?")
_CHOICE = re.compile(r"\\(?:text|mathrm)\s*\{\s*\(?\s*([A-H])\s*[).:]\s*([^{}]*)\}\s*(.*)", re.S)
_BARE_CHOICE = re.compile(r"\(?\s*([A-H])\s*[).:]\s*()(.+)", re.S)
_HEDGE = re.compile(r"(?<![A-Za-z])(?:(?i:or|and|nor|not|but|maybe)|[A-H])(?![A-Za-z])")
"""What offers another option, or takes one back."""
_WORDS = re.compile(r"[A-Za-z][A-Za-z'.,-]*(?: [A-Za-z0-9][A-Za-z0-9'.,-]*)*")
_ARTICLE = re.compile(r"(?:an?|the) (?=[a-z]-?[a-z]{2})", re.I)
_PROPER_NAME = re.compile(r"(?=.*[aeiouAEIOU])[A-Z][a-z]{2}")
_SHORT = {"yes", "no", "odd", "even", "dne", "all", "one", "two", "six", "ten"}


@dataclass(frozen=True)
class Reference:
    """A parsed reference answer.

    Args:
        text: As `normalize_latex` returns it.
        kind: Decides how it is compared.
        name: Name of the quantity (the x of ``x = 4``); empty: none.
        value: Text without name and unit.
        unit: Its unit, if any.
        exact: Its value if it is a number.
        label: Words before an equals sign or a tuple: the area of ``\\text{Area} = 4``.
        is_rounded: Whether it has a sign of approximation, which answers may have too.
        parameter: Letter of its integer parameter: the k of ``k\\pi, k \\in \\mathbb{Z}``.
        choice: Letter of the option that the value belongs to: ``\\text{(B) }12``.
    """

    text: str
    kind: Kind
    name: str = ""
    value: str = ""
    unit: str | None = None
    exact: Fraction | None = None
    label: str = ""
    is_rounded: bool = False
    choice: str = ""
    parameter: str = ""


@lru_cache(maxsize=4096)
def parse_reference(answer: str) -> Reference | None:
    """Parse a reference answer, with or without ``$`` or a box around it; None if it is empty.

    >>> references = [parse_reference(text) for text in ("50\\\\%", "(A)", "\\\\text{parallel}", "x = 2y")]
    >>> [(reference.kind, reference.value) for reference in references]
    [('number', '50'), ('letter', 'A'), ('words', 'parallel'), ('formula', '2y')]
    """
    ascii_text = to_ascii(answer)
    text = normalize_latex(ascii_text) if ascii_text else ""
    while box := re.fullmatch(r"\\boxed\s*\{(.*)\}", text):
        text = box[1].strip()
    noun, parameter = introduction(text), integer_parameter(text)
    text, is_rounded = split_approximation(plain_answer(text))
    if not text:
        return None
    if is_rounded:
        value = parse_reference(text)
        return value and replace(value, is_rounded=True)
    letter, rest = split_choice(text)
    value = parse_reference(rest) if letter else None
    if value is not None:
        return replace(value, choice=letter)
    label, rest = split_label(text)
    value = parse_reference(rest) if label else None
    return replace(_parse_plain(text) if value is None else value, label=label or noun, parameter=parameter)


def _parse_plain(text: str) -> Reference:
    if len(text) > MAX_LENGTH and text.isdecimal():
        return Reference(text, "words", value=text)  # too expensive to evaluate: only identical text is equal
    for kind, notation in NOTATIONS.items():
        value = notation(text)
        if value:
            return Reference(text, kind, value=value)
    name, value = split_name(text)
    if "=" in value:
        name, value = "", text  # an equation, or a chain of them
    without_unit, unit = units.split(value)
    exact = parse_number(without_unit)
    return Reference(text, "formula" if exact is None else "number", name, without_unit, unit, exact)


def split_approximation(text: str) -> tuple[str, bool]:
    r"""Return a decimal without ``\approx``, and whether it had one.

    >>> split_approximation(r"\approx 12.57"), split_approximation(r"x \approx 12.57")
    (('12.57', True), ('x = 12.57', True))
    >>> split_approximation(r"4\pi \approx 12.57")
    ('4\\pi \\approx 12.57', False)
    """
    match = _APPROXIMATION.fullmatch(text)
    return (f"{match[1]} = {match[2]}" if match[1] else match[2], True) if match else (text, False)


def choice_letter(text: str) -> str:
    """Return the letter of ``A``, ``(A)`` or ``\\text{A}``; empty for anything else."""
    match = _LETTER.fullmatch(_WRAPPED.sub(r"\1", text).strip())
    return match[1] if match else ""


def split_choice(text: str, *, is_option: bool = False) -> tuple[str, str]:
    """Return (letter, answer) of an option that is written with its answer, else ("", text).

    Without \\text, C) may be a constant in a product, unless the reference `is_option`.

    >>> split_choice(r"\\text{(B) } 12"), split_choice(r"\\text{(C)}"), split_choice("C) 12", is_option=True)
    (('B', '12'), ('', '\\\\text{(C)}'), ('C', '12'))
    """
    match = _CHOICE.fullmatch(text) or (_BARE_CHOICE.fullmatch(text) if is_option else None)
    if match is None or not (match[2] or match[3]) or _HEDGE.search(f"{match[2]} {match[3]}"):
        return "", text
    letter, inside, after = match.groups()
    return letter, f"{inside} {after}".strip() if after else normalize_latex(f"\\text{{{inside}}}")


def normalized_words(text: str) -> str:
    """Return words in lower case; empty for a possible product of variables, or anything but words."""
    unwrapped = _WRAPPED.sub(r" \1 ", text)
    words = _ARTICLE.sub("", " ".join(unwrapped.split()).removesuffix("."))
    if chinese.WORDS.fullmatch(words):
        return words
    if _OTHER_WORDS.fullmatch(words):
        return words.lower()
    if not _WORDS.fullmatch(words):
        return ""
    is_certain = _WRAPPED.fullmatch(text) or any(
        len(w) > 3 or w.lower() in _SHORT for w in re.split("[^A-Za-z]+", words)
    )
    return words.lower() if is_certain or _PROPER_NAME.fullmatch(words) else ""


NOTATIONS: dict[Kind, Callable[[str], str]] = {
    "letter": choice_letter,
    "labels": normalized_labels,
    "clock": normalized_clock,
    "date": normalized_date,
    "words": normalized_words,
    "group": normalized_group,
    "base": normalized_base,  # no base is converted: the conversion is the problem
    "symbols": normalized_symbols,
}
"""Kind of a reference that is compared as text → the one notation of it; empty if a text is not of that kind."""


def split_name(text: str) -> tuple[str, str]:
    """Return (name, value) of ``x = 4`` or ``(x, y) = (1, 2)``, else ("", text)."""
    match = _NAMED.match(text)
    return (match[0].rstrip("= "), plain_answer(text[match.end() :].strip(), has_name=True)) if match else ("", text)


def split_equation(text: str) -> list[str]:
    """Split a text at its equals signs."""
    return [side.strip() for side in _EQUALS.split(text)]
