"""Values as phrases for messages."""

from __future__ import annotations

from contextlib import suppress

_CONTAINERS: dict[type, str] = {dict: "a mapping", list: "a list"}


def found(value: object) -> str:
    """Return a value of a recipe as a phrase, for the sentence "expected …, got …".

    >>> found("1e-6"), found(3), found(True), found(None), found({"a": 1})
    ("the text '1e-6'", 'the number 3', 'true', 'null', 'a mapping')
    """
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        return f"the text {short(repr(value))}"
    if isinstance(value, int | float):
        return f"the number {value}"
    return _CONTAINERS.get(type(value), type(value).__name__)


def either(choices: list[str]) -> str:
    """Return choices as a phrase; of more than twelve the first twelve and their number.

    >>> either(["a", "b", "c"])
    'a, b or c'
    """
    if len(choices) > 12:
        return f"{', '.join(choices[:12])}, … ({len(choices)} in all)"
    return " or ".join(part for part in (", ".join(choices[:-1]), choices[-1]) if part)


def short(text: str, length: int = 60) -> str:
    """Return `text`, cut to a maximum length.

    >>> short("abcdefgh", 5)
    'abcd…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def text_number(value: object) -> str:
    """Return a hint for a string that is a number; empty for other values.

    >>> text_number("1e-6")
    'this is text that looks like a number: remove the quotes'
    >>> text_number("grpo")
    ''
    """
    if isinstance(value, str):
        with suppress(ValueError):
            float(value)
            return "this is text that looks like a number: remove the quotes"
    return ""
