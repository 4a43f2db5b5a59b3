"""What a row carries for its scorer: a task, its settings and its item, as one text of built-in values."""

from __future__ import annotations

import ast
from typing import Any

from rlm_sandbox.inside.wire import decode, encode


def written(entry: dict[str, Any]) -> str:
    """The text of an entry: its `repr`, once subclasses (an enumeration, a named tuple) are what they are made of.

    >>> read(written({"task": "gcd", "item": {"numbers": (2, 4), "seen": {3}}}))
    {'task': 'gcd', 'item': {'numbers': (2, 4), 'seen': {3}}}
    """
    return repr(decode(encode(entry)))


def read(text: str) -> dict[str, Any]:
    """The entry that a text is; nothing in it is executed."""
    entry: dict[str, Any] = ast.literal_eval(text)
    return entry
