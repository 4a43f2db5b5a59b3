"""Encoding of values that cross between processes: types of a declared set, as JSON.

An instance of a subclass becomes the declared value, so that no method of the program arrives with it.
"""

from __future__ import annotations

import builtins
import datetime
import uuid
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rlm_sandbox.inside.protocol import EncodingError, Json

MAX_DEPTH = 60
"""Largest nesting depth of a value."""
_EXACT = 2**53
"""Bound of the integers that every JSON reader represents exactly."""

Extra = Callable[[Any, int], Json]
"""Encodes a value that is not of a declared type, or raises EncodingError."""
Encoder = Callable[[Any, int, Any], Json]
"""Encodes a value of one declared type: value, depth, sender."""


class ByValue:
    """The sender of a value: how containers, and values that are not of a declared type, become JSON.

    Here containers cross by value, and other types are refused.
    """

    def container(self, value: Any, depth: int, encoder: Encoder) -> Json:
        """Encode a mutable container at `depth`; `encoder` encodes its items."""
        return encoder(value, depth + 1, self)

    def undeclared(self, value: Any, depth: int) -> Json:
        """Encode a value that is not of a declared type."""
        raise EncodingError(f"a value of type {type(value).__name__}")


BY_VALUE = ByValue()


def encode(value: object, depth: int = 0, sender: ByValue = BY_VALUE) -> Json:
    """Return `value` as JSON.

    >>> encode([1, (2.5, None), {"a": {3}}, 2**60, b"x"])
    [1, {'$tuple': [2.5, None]}, {'$dict': [['a', {'$set': [3]}]]}, {'$int': '0x1000000000000000'}, {'$bytes': '78'}]
    """
    if depth > MAX_DEPTH:
        raise EncodingError("a value nested too deeply")
    if value is None or type(value) in (bool, str):
        return value
    kind = declared_type(value)
    if kind is None:
        return sender.undeclared(value, depth)
    if kind in _CONTAINERS:
        return sender.container(value, depth, ENCODERS[kind])
    return ENCODERS[kind](value, depth + 1, sender)


def declared_type(value: object) -> Any:
    """Return the declared type of `value`, or None; it does not read the program's `__class__`, as isinstance does."""
    kind = type(value)
    return kind if kind in ENCODERS else next((base for base in ENCODERS if issubclass(kind, base)), None)


def _int(value: Any, depth: int, sender: ByValue) -> Json:
    number = int.__int__(value)
    return number if abs(number) < _EXACT else {"$int": hex(number)}


def _float(value: Any, depth: int, sender: ByValue) -> Json:
    number = float.__float__(value)
    return number if number - number == 0 else {"$float": repr(number)}  # finite


def _items(iterable: Any, depth: int, sender: ByValue) -> list[Json]:
    return [encode(item, depth, sender) for item in iterable]


def _tuple(value: Any, depth: int, sender: ByValue) -> Json:
    items, fields = _items(tuple.__iter__(value), depth, sender), getattr(type(value), "_fields", None)
    return {"$named": [type(value).__name__, list(fields), items]} if type(fields) is tuple else {"$tuple": items}


def _pairs(tag: str, kind: Any = dict) -> Any:
    return lambda value, depth, sender: {tag: [_items(pair, depth, sender) for pair in kind.items(value)]}


def _sequence(tag: str, iterate: Callable[[Any], Any] = iter) -> Any:
    return lambda value, depth, sender: {tag: _items(iterate(value), depth, sender)}


def _text(tag: str, convert: Callable[[Any], str]) -> Any:
    return lambda value, depth, sender: {tag: convert(value)}


ENCODERS: dict[Any, Encoder] = {
    int: _int,
    float: _float,
    str: lambda value, depth, sender: str.__str__(value),
    list: lambda value, depth, sender: _items(list.__iter__(value), depth, sender),
    tuple: _tuple,
    Counter: _pairs("$counter"),
    OrderedDict: _pairs("$ordered", OrderedDict),
    dict: _pairs("$dict"),
    set: _sequence("$set", set.__iter__),
    frozenset: _sequence("$frozenset", frozenset.__iter__),
    deque: _sequence("$deque", deque.__iter__),
    bytes: _text("$bytes", bytes.hex),
    bytearray: _text("$bytearray", bytearray.hex),
    complex: lambda value, depth, sender: {"$complex": [repr(value.real), repr(value.imag)]},
    range: lambda value, depth, sender: {"$range": [hex(part) for part in (value.start, value.stop, value.step)]},
    Decimal: _text("$decimal", Decimal.__str__),
    Fraction: lambda value, depth, sender: {"$fraction": [hex(value.numerator), hex(value.denominator)]},
    datetime.datetime: _text("$datetime", datetime.datetime.isoformat),
    datetime.date: _text("$date", datetime.date.isoformat),
    datetime.time: _text("$time", datetime.time.isoformat),
    datetime.timedelta: lambda value, depth, sender: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    uuid.UUID: _text("$uuid", uuid.UUID.__str__),
    type({}.keys()): _sequence("$keys"),
    type({}.values()): _sequence("$values"),
    type({}.items()): _sequence("$items"),
    type(NotImplemented): lambda value, depth, sender: {"$builtin": "NotImplemented"},
    type(Ellipsis): lambda value, depth, sender: {"$builtin": "Ellipsis"},
    type: lambda value, depth, sender: _builtin_type(value, depth, sender),
}

_CONTAINERS = frozenset((list, dict, Counter, OrderedDict, set, deque, bytearray))


def _builtin_type(value: Any, depth: int, sender: ByValue) -> Json:
    name: str = value.__name__
    return {"$builtin": name} if vars(builtins).get(name) is value else sender.undeclared(value, depth)
