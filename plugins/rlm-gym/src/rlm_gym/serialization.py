"""Serialization of a task, its settings and its item as one text of Python literals (column ``entry``)."""

from __future__ import annotations

import ast
from typing import Any

from rlm_sandbox.inside.wire import decode, encode


def serialize(entry: dict[str, Any]) -> str:
    """Return an entry as text: its `repr`, with subclasses (enumerations, named tuples) reduced to built-in types.

    Other types, such as fractions, become text.

    >>> from fractions import Fraction
    >>> deserialize(serialize({"task": "gcd", "item": {"numbers": (2, 4), "seen": {3}, "share": Fraction(4, 3)}}))
    {'task': 'gcd', 'item': {'numbers': (2, 4), 'seen': {3}, 'share': '4/3'}}
    """
    return repr(_literal(decode(encode(entry))))


def _literal(value: Any) -> Any:
    if isinstance(value, dict):
        return {_literal(key): _literal(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(map(_literal, value))
    return value if value is None or isinstance(value, (int, float, complex, str, bytes)) else str(value)


def deserialize(text: str) -> dict[str, Any]:
    """Parse an entry without executing it."""
    entry: dict[str, Any] = ast.literal_eval(text)
    return entry
