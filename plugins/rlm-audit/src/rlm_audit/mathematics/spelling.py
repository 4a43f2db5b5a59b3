"""LaTeX spellings that change nothing: sizes, spaces, brackets that grow, synonyms, Unicode symbols, other digits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_SCRIPTS = ("０", "٠", "०", "๐")
"""The digit zero of other scripts: full width, Arabic, Devanagari, Thai."""
_SYMBOLS = {"-": "−", "\\pi": "π", "\\infty": "∞", "\\cdot": "·", "\\cup": "∪", "\\pm": "±", "\\leq": "≤"}


def spell(text: str, rng: random.Random) -> str:
    """Return a text in another LaTeX spelling."""
    for change in rng.sample(SPELLINGS, rng.choice([0, 0, 1, 1, 2])):
        text = change(text, rng)
    return text


def _growing_brackets(text: str, rng: random.Random) -> str:
    return re.sub(r"(?<!\\)[(\[]", r"\\left\g<0>", re.sub(r"(?<!\\)[)\]]", r"\\right\g<0>", text))


def _wide_signs(text: str, rng: random.Random) -> str:
    space = rng.choice([" ", "\\,", "\\;", "\\>", "\\ ", "~", "\\thinspace ", "\\enspace ", "\\hspace{2mm}"])
    return re.sub(r"(?<=[\w)}])[+=](?=[\w(\\])", lambda sign: f"{space}{sign[0]}{space}", text)


def _spaces(text: str, rng: random.Random) -> str:
    return f" {text.replace(',', ', ')} " if not re.search(r"\d,\d|\\,|\{,", text) else f" {text}  "


def _color(text: str, rng: random.Random) -> str:
    form = rng.choice(["\\textcolor{%s}{%s}", "\\color{%s}{%s}", "{\\color{%s} %s}", "\\color{%s} %s"])
    return form % (rng.choice(["red", "blue", "green", "teal"]), text)


def _zero_width(text: str, rng: random.Random) -> str:
    if "\\boxed" in text:
        return text
    return rng.choice(["\u200b%s", "%s\u2060", "\ufeff%s", "%s\u200b\u200b"]) % text


def _unicode(text: str, rng: random.Random) -> str:
    for command, symbol in _SYMBOLS.items():
        text = re.sub(re.escape(command) + r"(?![A-Za-z])", symbol, text)
    return text


def _other_digits(text: str, rng: random.Random) -> str:
    zero = ord(rng.choice(_SCRIPTS))
    return re.sub("[0-9]", lambda match: chr(zero + int(match[0])), text)


SPELLINGS: list[Callable[[str, random.Random], str]] = [
    lambda text, rng: text.replace("\\frac", rng.choice(["\\dfrac", "\\tfrac", "\\cfrac", "\\nicefrac", "\\sfrac"])),
    _growing_brackets,
    _wide_signs,
    lambda text, rng: f"${text}$",
    lambda text, rng: f"{text}.",
    _spaces,
    lambda text, rng: rng.choice(["\\displaystyle ", "\\textstyle "]) + text,
    lambda text, rng: text.replace("\\cdot", "\\times"),
    *(_unicode, _other_digits, _color, _zero_width),
]
