"""Text around a box: sentences, relations, units and styles keep the answer; operands and denials change it."""

from __future__ import annotations

import random
from collections.abc import Callable

Text = Callable[[int, random.Random], str]
_DELIMITERS = [("$", "$"), ("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]"), ("", "")]
_SENTENCES = [
    "The answer is ",
    "**Final Answer:** ",
    "Hence, we get ",
    "- ",
    "(a) ",
    "So it is not odd: ",
    "答案是",
    "",
]
_ENDS = ["", ".", ", as required.", " (see above).", ", which is not prime.", "\n\nAlternatively, count them."]
_RELATIONS = [
    "x = ",
    "S = \\frac{a}{b} = ",
    "\\therefore ",
    "1 + 2 \\Rightarrow ",
    "n \\leq ",
    "\\text{Total: }",
    "=> ",
]
_UNITS = ["\\text{ cm}", "\\,\\mathrm{m/s}", "^\\circ", "\\%", "\\ \\text{apples}", "^{\\text{th}}", "\\text{ cm}^2"]
_STYLES = [
    "\\textbf{BOX}",
    "\\mathbf{BOX}",
    "{BOX}",
    "\\color{red}{BOX}",
    "\\textcolor{blue}{BOX}",
    "\\Large BOX",
    "(BOX)",
]
_OPERANDS_BEFORE = ["-", "2", "3+", "x", "2 \\cdot ", "\\pi", "5 - ", "\\sqrt{2}", "\\pm ", "y = -", "\\neq ", "\\log "]
_OPERANDS_AFTER = ["^2", "+1", "!", "\\pi", "/5", "7", " \\times 10^3", "x", "\\sqrt{3}", " - 1", "_5", "(x+1)", ".5"]
_ARGUMENTS = [
    "\\frac{1}{BOX}",
    "\\sqrt{BOX}",
    "2^{BOX}",
    "\\cancel{BOX}",
    "\\overline{BOX}",
    "x_{BOX}",
    "\\phantom{BOX}",
]
_DENIALS = [
    "not ",
    "The answer is not ",
    "It isn't ",
    "It cannot be ",
    "x is never equal to ",
    "I do not think it is ",
    "It is false that the answer is ",
    "minus ",
    "不是",
    "other than ",
    "NEXT or ",
    "either NEXT or ",
    "NEXT 或 ",
]
_TAKEN_BACK = [
    " is wrong",
    " is not the answer",
    " (or NEXT)",
    ", or NEXT",
    ", maybe NEXT",
    " and NEXT",
    " or perhaps NEXT",
    "或NEXT",
    " does not work",
    ", but it is NEXT",
    " would be wrong",
    " fails",
    "?",
    "不正确",
    "是错误的",
]
_SCALES = [" million", " thousand", " hundredths", " thirds", " dozen", " squared", " billion dollars"]


def _box(value: int) -> str:
    return f"\\boxed{{{value}}}"


def _delimited(formula: str, rng: random.Random) -> str:
    opened, closed = rng.choice(_DELIMITERS)
    return f"{opened}{formula}{closed}"


def _in_argument(forms: list[str]) -> Text:
    return lambda v, rng: _delimited(rng.choice(forms).replace("BOX", _box(v)), rng)


RIGHT: dict[str, Text] = {
    "in a sentence": lambda v, rng: rng.choice(_SENTENCES) + _delimited(_box(v), rng) + rng.choice(_ENDS),
    "after a relation": lambda v, rng: _delimited(rng.choice(_RELATIONS) + _box(v), rng),
    "before a unit": lambda v, rng: _delimited(_box(v) + rng.choice(_UNITS), rng),
    "in a style": _in_argument(_STYLES),
}
WRONG: dict[str, Text] = {
    "after an operand": lambda v, rng: _delimited(rng.choice(_OPERANDS_BEFORE) + _box(v), rng),
    "before an operand": lambda v, rng: _delimited(_box(v) + rng.choice(_OPERANDS_AFTER), rng),
    "in an argument": _in_argument(_ARGUMENTS),
    "after a denial": lambda v, rng: rng.choice(_DENIALS).replace("NEXT", str(v + 1)) + _delimited(_box(v), rng),
    "taken back": lambda v, rng: _delimited(_box(v), rng) + rng.choice(_TAKEN_BACK).replace("NEXT", str(v + 1)),
    "scaled by a word": lambda v, rng: _delimited(_box(v), rng) + rng.choice(_SCALES),
    "in a pair": lambda v, rng: _delimited(rng.choice([f"({_box(v)}, {v + 1})", f"({v + 1}, {_box(v)})"]), rng),
}
