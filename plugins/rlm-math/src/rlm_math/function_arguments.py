"""Names of the arguments of functions and of the indices of sequences: ``f(t) = 2t`` is ``f(x) = 2x``."""

from __future__ import annotations

import re

from rlm_math.algebra.tokens import FUNCTIONS

_FUNCTION = re.compile(r"(.+?)\s*\(\s*([a-z](?:\s*,\s*[a-z])*)\s*\)")
_SEQUENCE = re.compile(r"([A-Za-z])_\{?([ijkmnrt])\}?")
_LETTERS = re.compile(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]+")
_VARIABLES = {*"stuvwxyz"}


def with_arguments_of(gold_name: str, name: str, value: str) -> str | None:
    """Return a value with the arguments of the reference; None if the names are of different functions.

    >>> with_arguments_of("f(x)", "f(t)", "at+1"), with_arguments_of("f(x)", "f(t)", "2x")
    ('ax+1', None)
    """
    heads, arguments = zip(*map(_parts, (gold_name, name)), strict=True)
    if heads[0] != heads[1] or len(arguments[0]) != len(arguments[1]) or len({*arguments[1]}) < len(arguments[1]):
        return None
    if letters(value) & {*arguments[0]} - {*arguments[1]}:
        return None  # f(t) = 2x has another variable
    return _LETTERS.sub(lambda match: _renamed(match[0], dict(zip(*arguments[::-1], strict=True))), value)


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
