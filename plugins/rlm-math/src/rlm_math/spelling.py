"""One way to write things: odd characters become LaTeX, LaTeX loses what only spaces and sizes it."""

from __future__ import annotations

import re
import unicodedata

_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SIGNS = {
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
}
_ODD = re.compile("|".join(map(re.escape, _SIGNS)))
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.S)
_DROPPED = {r"\left", r"\right", r"\displaystyle", r"\big", r"\Big", r"\bigl", r"\bigr", r"\,", r"\;", r"\:", r"\!"}
_SPACES = {"\\ ", r"\quad", r"\qquad"}
_SAME = {
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


def plain(text: str) -> str | None:
    """`text` in ASCII where there is a way to say it; None when it hides something (control or format characters).

    >>> plain("４"), plain("√2"), plain("1½"), plain("x²"), plain("٤"), plain("4\u200b2")
    ('4', '\\\\sqrt{2}', '1\\\\frac{1}{2}', 'x^{2}', '4', None)
    """
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"√\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"√\s*(\d+|\w)", r"\\sqrt{\1}", text).replace("√", r"\sqrt")
    text = re.sub("[⁰¹²³⁴-⁹⁻]+", lambda m: f"^{{{m[0].translate(_RAISED)}}}", text)
    text = _ODD.sub(lambda m: _SIGNS[m[0]], text)
    text = unicodedata.normalize("NFKC", text)
    if any(unicodedata.category(character) in ("Cf", "Cs", "Cc", "Co") for character in text):
        return None
    return "".join(c if c.isascii() or not c.isdecimal() else str(unicodedata.decimal(c)) for c in text)


def tidy(text: str) -> str:
    """`text` without the commands that only space or size it, and one spelling for each of the others.

    >>> tidy(r"$\\left(\\dfrac12,\\ \\sqrt3\\right)$.")
    '(\\\\frac{1}{2}, \\\\sqrt{3} )'
    """
    text = _COMMAND.sub(_one, text.replace("{,}", ",").replace("~", " "))
    text = re.sub(r"(?<!\\)\$", "", text)
    text = re.sub(r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}", text)
    text = re.sub(r"\\frac\s*([0-9A-Za-z])\s*([0-9A-Za-z])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\s*([0-9A-Za-z])\s*\{", r"\\frac{\1}{", text)
    text = re.sub(r"(\\frac\s*\{[^{}]*\})\s*([0-9A-Za-z])", r"\1{\2}", text)
    return text.strip().removesuffix(".").strip()


def _one(match: re.Match[str]) -> str:
    command = match[0]
    if command in _DROPPED:
        return " " if command[-1].isalpha() else ""
    return " " if command in _SPACES else _SAME.get(command, command)


def compact(text: str) -> str:
    """`text` without the spaces that part nothing: equal for what is written alike.

    >>> compact(r"\\{ 1, 2 \\}"), compact("1 2"), compact("101_{2}"), compact("2^{1}0")
    ('\\\\{1,2\\\\}', '1 2', '101_2', '2^{1}0')
    """
    text = re.sub(r"([_^])\s*\{(\w)\}(?!\s*\d)", r"\1\2", re.sub(r"(?<=\d)\s+(?=[A-Za-z])", "", text))
    return re.sub(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])", "", re.sub(r"\s+", " ", text))


def commas(text: str) -> int:
    """How many commas stand outside every bracket but the outermost: the length of a tuple, set or list, less one.

    >>> commas(r"(1, f(x, y))"), commas("1, 2"), commas("x"), commas("\\pm 2")  # ±2 is two numbers
    (1, 1, 0, 1)
    """
    if text.startswith("\\pm"):
        return 1
    depth, at = 0, {0: 0, 1: 0}
    for character in text.replace(r"\{", "(").replace(r"\}", ")"):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth in at:
            at[depth] += 1
    return at[0] or (at[1] if re.match(r"\s*(\(|\[|\\\{)", text) else 0)
