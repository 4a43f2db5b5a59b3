"""What values are called in messages to people."""

from __future__ import annotations

from contextlib import suppress


def found(value: object) -> str:
    """A value of a recipe, for the sentence "found …".

    >>> found("1e-6"), found(3), found(True), found(None), found({"a": 1})
    ("the text '1e-6'", 'the number 3', 'true', 'null', 'a mapping')
    """
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        return f"the text {short(repr(value))}"
    if isinstance(value, int | float):
        return f"the number {value}"
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else type(value).__name__


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


def text_number(value: object) -> str:
    """A hint for numbers that were written as text.

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
