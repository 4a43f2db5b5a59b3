"""Normalization of notation: Unicode symbols become LaTeX, and LaTeX loses commands for spacing and size."""

from __future__ import annotations

import re
import unicodedata

from rlm_math.latex_rewrites import rewrite

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_GREEK = ["alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "sigma", "phi", "omega"]
_SYMBOLS = {
    "½": r"\frac{1}{2}",
    "⅓": r"\frac{1}{3}",
    "⅔": r"\frac{2}{3}",
    "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}",
    "⅕": r"\frac{1}{5}",
    "⅙": r"\frac{1}{6}",
    "⅛": r"\frac{1}{8}",
    "⁄": "/",
    "−": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "π": r"\pi ",
    "∞": r"\infty ",
    "≤": r"\leq ",
    "≥": r"\geq ",
    "°": r"^\circ ",
    "÷": "/",
    "±": r"\pm ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∅": r"\emptyset ",
    "…": r"\ldots ",
    "≈": r"\approx ",
    "≠": r"\neq ",
    "∈": r"\in ",
    "∖": r"\setminus ",
    "≡": r"\equiv ",
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    **{letter: rf"\mathbb{{{unicodedata.normalize('NFKC', letter)}}}" for letter in "ℝℤℕℚℂ"},
    **{letter: rf"\{name} " for letter, name in zip("αβγδθλμσφω", _GREEK, strict=True)},
}
_SYMBOL_PATTERN = re.compile("|".join(map(re.escape, _SYMBOLS)))
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.S)
_REMOVED = {r"\left", r"\right", r"\displaystyle", r"\big", r"\Big", r"\bigl", r"\bigr", r"\,", r"\;", r"\:", r"\!"}
_SPACES = {"\\ ", r"\quad", r"\qquad"}
_SYNONYMS = {
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\cfrac": r"\frac",
    r"\le": r"\leq",
    r"\ge": r"\geq",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
    r"\varnothing": r"\emptyset",
    r"\textrm": r"\text",
    r"\mbox": r"\text",
    r"\textbf": r"\text",
    r"\textit": r"\text",
    r"\mathbf": r"\mathrm",
    r"\degree": r"^\circ",
}


def to_ascii(text: str) -> str | None:
    """Return `text` in ASCII where a notation exists; None if it contains invisible (control or format) characters.

    >>> to_ascii("４"), to_ascii("√2"), to_ascii("1½"), to_ascii("x²"), to_ascii("٤"), to_ascii("4\u200b2")
    ('4', '\\\\sqrt{2}', '1\\\\frac{1}{2}', 'x^{2}', '4', None)
    """
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"√\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"√\s*(\d+|\w)", r"\\sqrt{\1}", text).replace("√", r"\sqrt")
    text = re.sub("[⁰¹²³⁴-⁹⁻]+", lambda m: f"^{{{m[0].translate(_SUPERSCRIPTS)}}}", text)
    text = _SYMBOL_PATTERN.sub(lambda m: _SYMBOLS[m[0]], text)
    text = unicodedata.normalize("NFKC", text)
    if any(unicodedata.category(character) in ("Cf", "Cs", "Cc", "Co") for character in text):
        return None
    return "".join(c if c.isascii() or not c.isdecimal() else str(unicodedata.decimal(c)) for c in text)


def normalize_latex(text: str) -> str:
    """Return `text` without spacing and size commands, and with one notation for synonymous commands.

    >>> normalize_latex(r"$\\left(\\dfrac12,\\ \\sqrt3\\right)$.")
    '(\\\\frac{1}{2}, \\\\sqrt{3} )'
    """
    text = rewrite(text)
    if quantity := re.fullmatch(r"\s*\\text\s*\{\s*(-?\d[\d.,/]*)\s*([^{}\\]*)\}\s*", text):
        text = f"{quantity[1]}\\text{{ {quantity[2]}}}" if quantity[2] else quantity[1]
    if delimited := re.fullmatch(r"\s*\\([(\[])(.*)\\[)\]]\s*", text, re.S):
        text = delimited[2]
    text = _COMMAND.sub(_normalize_command, text.replace("{,}", ",").replace("~", " "))
    text = re.sub(r"(?<!\\)\$", "", text)
    text = re.sub(r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}", text)
    text = re.sub(r"\\frac\s*([0-9A-Za-z])\s*([0-9A-Za-z])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\s*([0-9A-Za-z])\s*\{", r"\\frac{\1}{", text)
    text = re.sub(r"(\\frac\s*\{[^{}]*\})\s*([0-9A-Za-z])", r"\1{\2}", text)
    return text.strip().removesuffix(".").strip()


def _normalize_command(match: re.Match[str]) -> str:
    command = match[0]
    if command in _REMOVED:
        return " " if command[-1].isalpha() else ""
    return " " if command in _SPACES else _SYNONYMS.get(command, command)


def strip_spaces(text: str) -> str:
    """Return `text` without insignificant spaces; texts in the same notation become equal.

    >>> strip_spaces(r"\\{ 1, 2 \\}"), strip_spaces("1 2"), strip_spaces("101_{2}"), strip_spaces("2^{1}0")
    ('\\\\{1,2\\\\}', '1 2', '101_2', '2^{1}0')
    """
    text = re.sub(r"([_^])\s*\{(\w)\}(?!\s*\d)", r"\1\2", re.sub(r"(?<=\d)\s+(?=[A-Za-z])", "", text))
    return re.sub(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])", "", re.sub(r"\s+", " ", text))
