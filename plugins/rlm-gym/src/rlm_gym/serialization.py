"""Serialization of a task, its settings and its item as one text of Python literals (column ``entry``)."""

from __future__ import annotations

import ast
from typing import Any

from rlm_sandbox.inside.decoding import decode
from rlm_sandbox.inside.encoding import encode


def serialize(entry: dict[str, Any]) -> str:
    """Return an entry as text: its `repr`, with subclasses (enumerations, named tuples) reduced to built-in types.

    >>> deserialize(serialize({"task": "gcd", "item": {"numbers": (2, 4), "seen": {3}}}))
    {'task': 'gcd', 'item': {'numbers': (2, 4), 'seen': {3}}}
    """
    return repr(decode(encode(entry)))


def deserialize(text: str) -> dict[str, Any]:
    """Parse an entry without executing it."""
    entry: dict[str, Any] = ast.literal_eval(text)
    return entry
