"""Names that may be replaced: arguments, indices, parameters, constants: ``f(t) = 2t`` is ``f(x) = 2x``."""

from __future__ import annotations

import re

from rlm_math.algebra.tokens import FUNCTIONS

_FUNCTION = re.compile(r"(.+?)\s*\(\s*([a-z](?:\s*,\s*[a-z])*)\s*\)")
_SEQUENCE = re.compile(r"([A-Za-z])_\{?([ijkmnrt])\}?")
_LETTERS = re.compile(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]+")
_VARIABLES = {*"stuvwxyz"}
_OF_INTEGRALS = {*"efFgG"}
_CONSTANT = re.compile(r"(.+)\+\s*([Cc])\s*", re.S)


def with_arguments_of(gold_name: str, name: str, value: str) -> str | None:
    """Return a value with the arguments of the reference; None if the names are of different functions.

    >>> with_arguments_of("f(x)", "f(t)", "at+1"), with_arguments_of("f(x)", "f(t)", "2x")
    ('ax+1', None)
    """
    heads, arguments = zip(*map(_parts, (gold_name, name)), strict=True)
    if _is_y_and_function(gold_name, name) and "y" not in letters(value):
        return value
    if heads[0] != heads[1] or len(arguments[0]) != len(arguments[1]) or len({*arguments[1]}) < len(arguments[1]):
        return None
    if letters(value) & {*arguments[0]} - {*arguments[1]}:
        return None  # f(t) = 2x has another variable
    return _LETTERS.sub(lambda match: _renamed(match[0], dict(zip(*arguments[::-1], strict=True))), value)


def _is_y_and_function(*names: str) -> bool:
    """Return True for ``y`` and the name of a function of another variable, such as ``f(x)``."""
    function = _FUNCTION.fullmatch(next((each for each in names if each != "y"), ""))
    return "y" in names and function is not None and len(function[1]) == 1 == len(function[2]) and function[2] != "y"


def with_name(text: str, name: str, gold_name: str, gold_text: str) -> str:
    """Return a text with the name of the reference; as it is if one of the names has another use on the other side.

    >>> with_name("2n+1", "n", "k", "2k+1"), with_name("2n+k", "n", "k", "2k+1")
    ('2k+1', '2n+k')
    """
    if not (name and gold_name) or gold_name in letters(text) or name in letters(gold_text):
        return text
    return _LETTERS.sub(lambda match: _renamed(match[0], {name: gold_name}), text)


def with_constant_of(gold_text: str, text: str) -> str:
    """Return a text with the constant of integration of the reference: ``+K`` or ``+c`` is ``+C``.

    >>> with_constant_of("e^x+C", "e^x+K"), with_constant_of("a+b+c", "a+b+C")
    ('e^x+C', 'a+b+C')
    """
    match = _CONSTANT.fullmatch(gold_text)
    others = letters(match[1]) if match else set[str]()
    if match is None or not others & _VARIABLES or not others <= _VARIABLES | _OF_INTEGRALS:
        return text
    names = [name for name in {"C": "cK", "c": "C"}[match[2]] if name in letters(text)]
    return with_name(text, names[0], match[2], gold_text) if len(names) == 1 else text


def is_of_another_variable(name: str, value: str) -> bool:
    """Return True for ``f(y) = 2x``: the argument is none of the variables of the value.

    >>> is_of_another_variable("f(y)", "2x"), is_of_another_variable("f(x)", "2x"), is_of_another_variable("f(x)", "c")
    (True, False, False)
    """
    arguments = {*_parts(name)[1]}
    return bool(arguments) and not arguments & letters(value) and bool(_VARIABLES & letters(value))


def letters(text: str) -> set[str]:
    """Return the letters of a formula that are variables."""
    found = (match[0] for match in _LETTERS.finditer(text))
    return {letter for run in found if run[0] != "\\" and run not in FUNCTIONS for letter in run}


def _parts(name: str) -> tuple[str, list[str]]:
    """Return (f, [x, y]) of ``f(x, y)``, and (a, [n]) of ``a_n``."""
    match = _FUNCTION.fullmatch(name) or _SEQUENCE.fullmatch(name)
    return (match[1].replace(" ", ""), re.findall("[a-z]", match[2])) if match else (name, [])


def _renamed(run: str, names: dict[str, str]) -> str:
    return run if run[0] == "\\" or run in FUNCTIONS else "".join(names.get(letter, letter) for letter in run)
