"""Answers that are no plain values: names, restated problems, words, letters of options, times, bases."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from rlm_math.units import changes_number

_TEXT = r"\\(?:text|mathrm|operatorname|overline|vec|bar|hat)\s*\{[^{}]*\}"
_SUBSCRIPT = r"_\s*(?:\{[^{}]*\}|\\?\w[A-Za-z]*)"
_ARGUMENTS = r"(?<=[A-Za-z'}])\s*\([^()]*\)"
_INNER = re.compile(
    rf"{_SUBSCRIPT}|(?<=[A-Z}}])\s*\^\s*\{{\s*-1\s*\}}\s*$|\^\s*\{{?\s*(?:\\prime|-1)\s*\}}?(?=\s*\()|'"
)
_LONE = re.compile(rf"(?:\\?[A-Za-z]+|{_TEXT})(?:{_ARGUMENTS})?")
_TUPLE = re.compile(r"\\?[({]\s*\w+(?:\s*,\s*\w+)+\s*\\?[)}]")
_WORDS = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{([^{}]*)\}")
_EVALUATED = re.compile(r"\\(?:lim|i*int|sum|prod)(?![A-Za-z])")
_CONSTANTS = re.compile(
    r"\\(?:begin|end)\s*\{\w+\}(?:\s*\{\w+\})?|\\(?:bullet|pi|angle|triangle|frac|sqrt|cdot|times|left|right|pm|circ|infty|sin|cos|tan|ln|log|exp|text\s*\{[^{}]*\}"
    r"|mathrm\s*\{[^{}]*\})(?![A-Za-z])|(?<![A-Za-z])(?:[ei]|sin|cos|tan|ln|log)(?![A-Za-z])"
)


class Named(NamedTuple):
    """A value and its name; an empty name for a text that is no equation."""

    name: str
    value: str


def split_equation(text: str) -> list[str]:
    """Split a text at its equals signs outside all brackets.

    >>> split_equation("x = 2 = y"), split_equation(r"x \\geq 2"), split_equation("{a=1}")
    (['x', '2', 'y'], ['x \\\\geq 2'], ['{a=1}'])
    """
    depth, start, sides = 0, 0, list[str]()
    for mark in re.finditer(r"[({\[]|[)}\]]|(?<![<>!:=])=(?!=)", text):
        if mark[0] == "=" and depth == 0:
            sides.append(text[start : mark.start()].strip())
            start = mark.end()
        depth += (mark[0] in "({[") - (mark[0] in ")}]")
    return [*sides, text[start:].strip()]


def split_name(text: str) -> Named:
    """Return the name and the value of an equation of which one side has no value, else ("", text).

    A side with a number, such as 2x or x², is to be solved. Sums and products are names of numbers only.

    >>> [tuple(split_name(text)) for text in ("x = 4", "AB=4", "73 = m+n", "S_1:S_2=7:32", "(x,y)=(1,2)")]
    [('x', '4'), ('AB', '4'), ('m+n', '73'), ('S_1:S_2', '7:32'), ('(x,y)', '(1,2)')]
    >>> [split_name(text).name for text in ("2x=4", "x^2=4", "y=2x", "x+y=2z", "f(2)=5", "x=1,y=2", "e^x")]
    ['', '', 'y', '', 'f(2)', '', '']
    """
    first, *rest = split_equation(text)
    if not rest or (len(rest) > 1 and re.search(r"[,;]|\\text\s*\{[^{}]*(?:and|or)\s*\}|\b(?:and|or)\b", text)):
        return Named("", text)
    value = " = ".join(rest)
    if _is_name(first, value):
        return Named(first, value)
    return Named(rest[0], first) if len(rest) == 1 and _is_name(rest[0], first) else Named("", text)


def _is_name(side: str, value: str) -> bool:
    if _TUPLE.fullmatch(side):
        return value.lstrip("\\ ")[:1] in ("(", "{")
    if _EVALUATED.match(side):
        return not has_variables(value)
    plain = _INNER.sub("", side).strip()
    if any(map(changes_number, re.findall("[a-z]+", " ".join(_WORDS.findall(side))))):
        return False
    if _LONE.fullmatch(plain) and not (len(plain) > 1 and plain.isalpha() and has_variables(value)):
        return has_variables(plain) or len(plain) == 1 or re.match(_TEXT, plain) is not None
    without = re.sub(_ARGUMENTS, "", plain)
    letters = re.findall(r"[A-Za-z]", re.sub(_TEXT, "X", _CONSTANTS.sub(" ", without)))
    if len({*letters}) < 2 and not "".join(letters).isupper():
        return False  # |x| = 4 is to be solved
    is_made_of_names = re.search(r"[\d,;<>]|\\(?:leq|geq|in|neq|pm|approx)\b", re.sub(_TEXT, "x", without)) is None
    return is_made_of_names and has_variables(re.sub(_TEXT, "x", plain)) and not has_variables(value)


def has_variables(text: str) -> bool:
    """Return True for a formula with letters that have no value."""
    return re.search(r"[A-Za-z]", _CONSTANTS.sub(" ", text)) is not None


def are_different(name: str, other: str) -> bool:
    """Return True for two names of different things; a name in words may be that of a symbol.

    >>> [are_different(*pair) for pair in (("x", "y"), ("AB", "BA"), (r"\\text{Area}", "A"), ("f(x)", "y"))]
    [True, False, False, False]
    >>> are_different(r"\\text{loss}", r"\\text{profit}"), are_different(r"\\text{area}", r"\\text{total area}")
    (True, False)
    """
    words = [{*match[1].lower().split()} if (match := _WORDS.fullmatch(each)) else None for each in (name, other)]
    if words[0] and words[1]:
        return not (words[0] <= words[1] or words[1] <= words[0])
    if words[0] or words[1]:
        return False
    plain = [re.sub(r"[\s{}]", "", each) for each in (name, other)]
    plain = ["".join(sorted(each)) if each.isalpha() else each for each in plain]
    is_function = any(re.fullmatch(r"[A-Za-z]\([a-z]\)", each.replace(" ", "")) for each in (name, other))
    return plain[0] != plain[1] and not (is_function and "y" in (name, other))


def is_in_order(name: str) -> bool:
    """Return False for coordinates in another order: ``(y, x) = (1, 2)`` is the point (2, 1)."""
    letters = re.findall(r"(?<!\w)[a-z](?!\w)", name) if _TUPLE.fullmatch(name) else []
    return letters == sorted(letters)


MAX_ANSWER_LENGTH = 1000
"""Largest length of an answer in characters, unless the reference has more than a quarter of it."""
_COMMAND = re.compile(
    r"\\\\|\\(?:operatorname\s*\*?\s*\{\s*(\w*)\s*\}|([A-Za-z]+))"
    r"|(?<![A-Za-z])(gcd|lcm|max|min|floor|ceil)(?=\s*\}?\s*(?:\(|\\\{))"
)
"""A command, a function without a backslash, or a line break, which has no name."""
_FUNCTION = re.compile(r"(a|arc|ar)?(sin|cos|tan|cot|sec|csc)h?|ln|lg|log|exp|cis")
_KNOWN_WORDS = (
    "frac sqrt pi cdot times div pm mp circ infty leq geq lt gt neq cup cap setminus backslash emptyset in mid langle "
    "rangle overline mathbb mathrm mathbf mathit mathcal begin end alpha beta gamma delta epsilon varepsilon zeta eta "
    "theta vartheta iota kappa lambda mu nu xi rho sigma tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi "
    "Sigma Phi Psi Omega ell vec prime text ldots dots cdots vert lvert rvert lor land vee wedge or and equiv i imath "
    "jmath hat top intercal approx"
)
_KNOWN = {*_KNOWN_WORDS.split()}
"""Commands allowed in any answer; others only if the reference contains them. Omitted on purpose: commands that
restate a problem (\\sum, \\int, \\lim, \\binom, \\gcd, \\bmod), or hide text (\\phantom)."""
_ROUNDED = {"lfloor", "rfloor", "lceil", "rceil", "floor", "ceil"}
"""Commands of which one allows the others."""
_COUNTS = re.compile(r"!|\\binom(?![A-Za-z])|(?<![\\A-Za-z])[kmnr](?![A-Za-z])")
"""Binomials, factorials, and variables that are integers by their names."""


def rejection_reason(answer: str, gold: str) -> str:
    """Return why `answer` is wrong whatever its value; empty if it must be evaluated. Expects normalized texts.

    >>> rejection_reason(r"\\int_0^1 x dx", r"\\frac{1}{2}"), rejection_reason("3!", "6"), rejection_reason("3!", "n!")
    ('\\\\int', '!', '')
    """
    if len(answer) > max(MAX_ANSWER_LENGTH, 4 * len(gold)):
        return "too long"
    allowed, may_count = {*_commands(gold)}, _COUNTS.search(re.sub(r"\\text\s*\{[^{}]*\}", "", gold))
    if may_count:
        allowed.add("binom")
    if allowed & _ROUNDED:
        allowed |= _ROUNDED
    unknown = [name for name in _commands(answer) if name not in allowed and not _is_known(name)]
    return f"\\{unknown[0]}" if unknown else "!" if "!" in answer and not may_count else ""


def _commands(text: str) -> list[str]:
    return ["".join(groups) for groups in _COMMAND.findall(text) if any(groups)]


def _is_known(name: str) -> bool:
    return name in _KNOWN or _FUNCTION.fullmatch(name) is not None


Kind = Literal["number", "letter", "words", "clock", "base", "long", "formula"]
WRAPPED = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s*)?\(?\s*([A-Z])\s*[).:]?")
_CLOCK = re.compile(r"([01]?\d|2[0-4])(?::([0-5]\d))?(?::([0-5]\d))?\s*(?:([ap])\.?\s?m\.?)?", re.I)
_IN_BASE = re.compile(
    r"[({\s]*([0-9A-Fa-f]+)[)}\s]*_\s*\{?\s*\(?\s*(\d+|two|three|four|five|six|seven|eight|nine)\s*\)?\s*\}?"
)
_BASES = dict(zip("two three four five six seven eight nine".split(), "23456789", strict=True))  # noqa: SIM905
_ARTICLE = re.compile(r"(?:an?|the) (?=[a-z]-?[a-z]{2})", re.I)
_WORD = re.compile(r"[^\W\d_][^\W\d_'.,-]*(?:[ '.,-]+[^\W_][^\W_'.,-]*)*\.?")


def choice_letter(text: str) -> str:
    """Return the letter of ``A``, ``(A)`` or ``\\text{A}``; empty for anything else."""
    match = _LETTER.fullmatch(WRAPPED.sub(r"\1", text).strip())
    return match[1] if match else ""


def normalized_clock(text: str) -> str:
    """Return a time of day in one notation; empty for anything else.

    >>> [normalized_clock(text) for text in ("09:05 \\\\text{ AM}", "2:45 p.m.", "5 pm", "20:34:00", "3:5", "3")]
    ['9:05:00', '14:45:00', '17:00:00', '20:34:00', '', '']
    """
    match = _CLOCK.fullmatch(WRAPPED.sub(r" \1", text).strip())
    if match is None or not (match[2] or match[4]):
        return ""
    hour, half = int(match[1]), (match[4] or "").lower()
    hour = hour % 12 + 12 * (half == "p") if half else hour
    return f"{hour}:{match[2] or '00'}:{match[3] or '00'}"


def normalized_base(text: str) -> str:
    """Return a numeral with a base in one notation; empty for anything else. No base is converted: that is the problem.

    >>> normalized_base("(0101)_{2}"), normalized_base("3a_{16}"), normalized_base("5")
    ('101_2', '3A_16', '')
    """
    match = _IN_BASE.fullmatch(WRAPPED.sub(r"\1", text))
    if match is None:
        return ""
    return f"{match[1].upper().lstrip('0') or '0'}_{_BASES.get(match[2], match[2])}"


def normalized_words(text: str) -> str:
    """Return words in lower case; empty for a possible product of variables, or anything but words."""
    words = _ARTICLE.sub("", " ".join(WRAPPED.sub(r" \1 ", text).split()).removesuffix("."))
    if not _WORD.fullmatch(words):
        return ""
    is_certain = bool(WRAPPED.fullmatch(text)) or any(len(word) > 3 for word in re.split(r"\W+", words))
    is_certain = is_certain or bool(re.fullmatch("[IVX]{2,}|[A-Z](?=[a-z]*[aeiou])[a-z]{2}", words))
    return words.lower() if is_certain or words.lower() in ("yes", "no", "odd", "even", "dne", "all") else ""


NOTATIONS: dict[Kind, Callable[[str], str]] = {
    "letter": choice_letter,
    "clock": normalized_clock,
    "words": normalized_words,
    "base": normalized_base,
}
"""Kind of a reference that is compared as text → the one notation of it; empty if a text is not of that kind."""
