"""Formatting of values for messages."""

from __future__ import annotations

import json
import re
from contextlib import suppress

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters but line feed and tab, marks of the direction of text, separators, characters without width
except the two joiners that Persian and Hindi spelling require, lone surrogates, tags."""
_CONTAINERS: dict[type, str] = {dict: "a mapping", list: "a list"}


def visible(text: str) -> str:
    r"""Return a text for a terminal: a character that would move the cursor, reorder the text or hide becomes its code.

    The code has the form of JSON, so that JSON remains the same data.

    >>> visible("a\x1b[2Kb\n"), visible("\u202eabc"), visible("grpo\u200b\U000e0041")
    ('a\\u001b[2Kb\n', '\\u202eabc', 'grpo\\u200b\\udb40\\udc41')
    """
    return _INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def describe(value: object) -> str:
    """Return a value as a phrase, for the end of "expected …, got …".

    >>> describe("1e-6"), describe(3), describe(True), describe(None), describe({"a": 1})
    ("the string '1e-6'", 'the number 3', 'true', 'null', 'a mapping')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the string {short(repr(value))}"
    if isinstance(value, int | float):
        return f"the number {value}"
    return next((name for kind, name in _CONTAINERS.items() if isinstance(value, kind)), type(value).__name__)


def expected(allowed: str, value: object) -> str:
    """Return the problem of a wrong value.

    >>> expected("a number", "1e-6")
    "expected a number, got the string '1e-6'"
    """
    return f"expected {allowed}, got {describe(value)}"


def either(choices: list[str]) -> str:
    """Return ``a, b or c``; of more than 12 choices the first 12 and the total number.

    >>> either(["a", "b", "c"])
    'a, b or c'
    """
    if len(choices) > 12:
        return f"{', '.join(choices[:12])}, … ({len(choices)} in all)"
    return " or ".join(text for text in (", ".join(choices[:-1]), choices[-1]) if text)


def short(text: str, length: int = 60) -> str:
    """Return `text`, cut to `length` characters.

    >>> short("abcdefgh", 5)
    'abcd…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def text_number(value: object) -> str:
    """Return a hint if `value` is a number in quotes; otherwise an empty string.

    >>> text_number("1e-6")
    'this is a string that looks like a number: remove the quotes'
    >>> text_number("grpo")
    ''
    """
    if isinstance(value, str):
        with suppress(ValueError):
            float(value)
            return "this is a string that looks like a number: remove the quotes"
    return ""
