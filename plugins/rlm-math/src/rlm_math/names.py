"""A name is the side of an equation without a value, found by its structure: ``AB = 4``, ``S_1:S_2 = 7:32``."""

from __future__ import annotations

import re
from typing import NamedTuple

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
