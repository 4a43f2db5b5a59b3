"""What values and types are called in messages to people."""

from __future__ import annotations

import enum
import types
import typing
from typing import Any, Literal, get_args, get_origin

_NAMES: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a mapping",
    list: "a list",
    type(None): "null",
    Any: "anything",
}


def found(value: object) -> str:
    """A value of a recipe, for the sentence "found …".

    >>> found("1e-6"), found(3), found(True), found(None), found({"a": 1})
    ("the text '1e-6'", 'the number 3', 'true', 'null', 'a mapping')
    """
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        return f"the text {short(repr(value))}"
    return f"the number {value}" if isinstance(value, int | float) else _NAMES.get(type(value), type(value).__name__)


def allowed(hint: Any) -> str:
    """A type annotation, for the sentence "allowed: …".

    >>> allowed(float | None), allowed(list[str]), allowed(Literal["k1", "k2"])
    ('a number or null', 'a list of text', "'k1' or 'k2'")
    """
    if hint in _NAMES:
        return _NAMES[hint]
    if get_origin(hint) in (typing.Union, types.UnionType):
        return either(list(dict.fromkeys(allowed(part) for part in get_args(hint))))
    if get_origin(hint) is Literal:
        return either([repr(choice) for choice in get_args(hint)])
    if get_origin(hint) is list:
        return f"a list of {allowed(get_args(hint)[0])}"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return either([str(member.value) for member in hint])
    return _NAMES.get(get_origin(hint), "a mapping")


def either(choices: list[str]) -> str:
    """``a, b or c``; the first dozen of many.

    >>> either(["a", "b", "c"])
    'a, b or c'
    """
    if len(choices) > 12:
        return f"{', '.join(choices[:12])}, … ({len(choices)} in all)"
    return " or ".join(part for part in (", ".join(choices[:-1]), choices[-1]) if part)


def short(text: str, length: int = 60) -> str:
    """`text`, cut when it is long.

    >>> short("abcdefgh", 5)
    'abcd…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"
