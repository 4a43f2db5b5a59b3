"""Normalization of notation: Unicode symbols become LaTeX, and LaTeX loses commands for spacing and size."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby

from rlm_math.chinese import translate
from rlm_math.latex_rewrites import rewrite

_FORMS = {"<super>": "^{%s}", "<sub>": "_{%s}", "<circle>": "%s"}
"""Form of a Unicode character, which NFKC would drop → LaTeX of a run of them."""
_GREEK = ["alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "sigma", "phi", "omega"]
_MARKS = "lfloor rfloor lceil rceil land lor angle neg parallel perp triangle"
_SYMBOLS = {
    **dict.fromkeys("⁄∕", "/"),
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
    "℃": r"^\circ C",
    "∶": ":",
    "′": "'",
    "″": "''",
    **dict.fromkeys("，、", ", "),
    "。": ".",
    **dict.fromkeys("⩽≦", r"\leq "),
    **dict.fromkeys("⩾≧", r"\geq "),
    **{mark: rf"\{name} " for mark, name in zip("⌊⌋⌈⌉∧∨∠¬∥⊥△", _MARKS.split(), strict=True)},
    "≡": r"\equiv ",
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    **{letter: rf"\mathbb{{{unicodedata.normalize('NFKC', letter)}}}" for letter in "ℝℤℕℚℂ"},
    **{letter: rf"\{name} " for letter, name in zip("αβγδθλμσφω", _GREEK, strict=True)},
}
_SLASHED = re.compile("([⁰¹²³⁴-⁹]+)[⁄/]([₀-₉]+)")
_SYMBOL_PATTERN = re.compile("|".join(map(re.escape, _SYMBOLS)))
_STRUCK_OUT = re.compile(r"(?<![\w}~])~~(?=\S).*?(?<=\S)~~(?![\w\\~])", re.S)
_WHOLE_STYLE = re.compile(
    r"(?:\\(?:math(?:rm|it)|ensuremath)\s*)?\{((?![A-Za-z\s]*\})(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}",
    re.S,
)
"""A formula in a font: more than letters, which may be a vector or a unit."""
_GROUP = re.compile(r"[\s$]*\{((?:[^{}\\]|\\.|\{(?:[^{}\\]|\\.|\{[^{}]*\})*\})+)\}[\s.$]*", re.S)
"""A formula in braces, as styles and colors leave it."""
_ZERO_WIDTH = "\u200b-\u200e\u2060\ufeff"
_INVISIBLE = re.compile(
    rf"(?<![\w{_ZERO_WIDTH}])[{_ZERO_WIDTH}]+|(?<![{_ZERO_WIDTH}])[{_ZERO_WIDTH}]+(?![\w{_ZERO_WIDTH}])"
)
"""Characters of no width, but not those between letters or digits."""
_PER_MILLE = re.compile(r"(^|=)\s*(-?\d+(?:\.\d+)?)\s*(?:‰|\\(?:permil|textperthousand)(?![A-Za-z]))\s*$")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.S)
_SIZES = ("big", "Big", "bigg", "Bigg")
_REMOVED = {r"\left", r"\middle", r"\right", r"\displaystyle", r"\!"}
_REMOVED |= {rf"\{size}{side}" for size in _SIZES for side in ("", "l", "m", "r")}
_SPACES = {
    *("\\ ", r"\,", r"\;", r"\:", r"\>", r"\quad", r"\qquad", r"\enspace", r"\enskip"),
    *(r"\thinspace", r"\medspace", r"\thickspace", r"\nobreakspace"),
}
_SYNONYMS = {
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\cfrac": r"\frac",
    r"\nicefrac": r"\frac",
    r"\sfrac": r"\frac",
    r"\le": r"\leq",
    r"\ge": r"\geq",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
    r"\varnothing": r"\emptyset",
    r"\textrm": r"\text",
    r"\mbox": r"\text",
    r"\textbf": r"\text",
    **{rf"\text{style}": r"\text" for style in ("it", "sf", "tt", "up", "normal", "sc")},
    r"\hbox": r"\text",
    r"\mathsf": r"\mathrm",
    r"\textdegree": r"^\circ",
    r"\ast": "*",
    r"\mathbf": r"\mathrm",
    r"\degree": r"^\circ",
    r"\bigcup": r"\cup",
    r"\bigcap": r"\cap",
}


def _form(character: str) -> str:
    """Return the form of a character: ``<super>``, ``<fraction>``, …; empty for ordinary ones."""
    form = unicodedata.decomposition(character).partition(" ")[0]
    return form if form in _FORMS or form == "<fraction>" else ""


def _written(form: str, run: Sequence[str]) -> str:
    """Return the LaTeX of characters of one form."""
    plain = [unicodedata.normalize("NFKC", character) for character in run] if form else run
    if form == "<circle>":
        plain = [f"({label})" for label in plain]  # ①③ are two labels, not 13
    if form == "<fraction>":
        return "".join(rf"\frac{{{top}}}{{{bottom}}}" for top, _, bottom in (text.partition("⁄") for text in plain))
    return _FORMS.get(form, "%s") % "".join(plain)


def to_ascii(text: str) -> str | None:
    """Return `text` in ASCII where a notation exists; None if a part of it is invisible or struck out (``~~4~~``).

    >>> to_ascii("４"), to_ascii("√2"), to_ascii("1⅜"), to_ascii("x²ⁿ"), to_ascii("٤"), to_ascii("4\u200b2")
    ('4', '\\\\sqrt{2}', '1\\\\frac{3}{8}', 'x^{2n}', '4', None)
    >>> to_ascii("10₂"), to_ascii("–4"), to_ascii("∛2"), to_ascii("4\u200b")
    ('10_{2}', '-4', '\\\\sqrt[3]{2}', '4')
    """
    if _STRUCK_OUT.search(text):
        return None
    text = re.sub(r"[\s\u2061\u2062]+", " ", _INVISIBLE.sub("", text))  # function application, invisible times
    text = text.replace("º", "°")
    text = _SLASHED.sub(lambda m: unicodedata.normalize("NFKC", rf"\frac{{{m[1]}}}{{{m[2]}}}"), text)
    text = re.sub(r"√\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"√\s*(\d+|\w)", r"\\sqrt{\1}", text).replace("√", r"\sqrt")
    text = re.sub(r"([∛∜])\s*(\d+|[A-Za-z])", lambda m: rf"\sqrt[{'34'[m[1] == '∜']}]{{{m[2]}}}", text)
    text = re.sub(r"(^|[=(\[{,^])(\s*)–(?=\s*[\dA-Za-z.\\])", r"\1\2-", text)
    text = "".join(_written(form, [*run]) for form, run in groupby(text, _form))
    text = _SYMBOL_PATTERN.sub(lambda m: _SYMBOLS[m[0]], text)
    text = unicodedata.normalize("NFKC", text)
    if any(unicodedata.category(character) in ("Cf", "Cs", "Cc", "Co") for character in text):
        return None
    return translate("".join(c if c.isascii() or not c.isdecimal() else str(unicodedata.decimal(c)) for c in text))


def normalize_latex(text: str) -> str:
    """Return `text` without spacing and size commands, and with one notation for synonymous commands.

    >>> normalize_latex(r"$\\left(\\dfrac12,\\ \\sqrt3\\right)$.")
    '(\\\\frac{1}{2}, \\\\sqrt{3} )'
    """
    text = rewrite(text)
    if quantity := re.fullmatch(r"\s*\\text\s*\{\s*(-?\d[\d.,/]*)\s*((?:(?:[^\W\d]|[(%])[^{}\\]*)?)\}\s*", text):
        text = f"{quantity[1]}\\text{{ {quantity[2]}}}" if quantity[2] else quantity[1]
    if delimited := re.fullmatch(r"\s*\\([(\[])(.*)\\[)\]]\s*", text, re.S):
        text = delimited[2]
    while grouped := _GROUP.fullmatch(text):
        text = grouped[1]
    text = _COMMAND.sub(_normalize_command, text.replace("{,}", ",").replace("~", " "))
    text = re.sub(r" {2,}", " ", re.sub(r"(?<!\\)\$", " ", text))
    text = re.sub(r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}", text)
    text = re.sub(r"\\frac\s*([0-9A-Za-z])\s*([0-9A-Za-z])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\s*([0-9A-Za-z])\s*\{", r"\\frac{\1}{", text)
    text = re.sub(r"(\\frac\s*\{[^{}]*\})\s*([0-9A-Za-z])", r"\1{\2}", text)
    text = text.strip().removesuffix(".").strip()
    while styled := _WHOLE_STYLE.fullmatch(text):
        text = styled[1].strip()
    return _PER_MILLE.sub(r"\1\\frac{\2}{1000}", text)


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
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(?<![0-9A-Za-z.])\s|\s(?![0-9A-Za-z.])|(?<=\D\.)\s|\s(?=\.\D)", "", text)
