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


def refuse(value: object, depth: int = 0) -> Json:
    """Raise EncodingError: the value is not of a declared type."""
    raise EncodingError(f"a value of type {type(value).__name__}")


def encode(value: object, depth: int = 0, extra: Extra = refuse) -> Json:
    """Return `value` as JSON; `extra` encodes what is not of a declared type.

    >>> encode([1, (2.5, None), {"a": {3}}, 2**60, b"x"])
    [1, {'$tuple': [2.5, None]}, {'$dict': [['a', {'$set': [3]}]]}, {'$int': '0x1000000000000000'}, {'$bytes': '78'}]
    """
    if depth > MAX_DEPTH:
        raise EncodingError("a value nested too deeply")
    if value is None or type(value) in (bool, str):
        return value
    encoder = _ENCODERS.get(type(value)) or _encoder_of_subclass(value)
    return encoder(value, depth + 1, extra) if encoder is not None else extra(value, depth)


def _encoder_of_subclass(value: object) -> Any:
    for declared_type, encoder in _ENCODERS.items():
        if issubclass(type(value), declared_type):  # not isinstance, which reads the program's `__class__`
            return encoder
    return None


def _int(value: Any, depth: int, extra: Extra) -> Json:
    number = int.__int__(value)
    return number if abs(number) < _EXACT else {"$int": hex(number)}


def _float(value: Any, depth: int, extra: Extra) -> Json:
    number = float.__float__(value)
    return number if number - number == 0 else {"$float": repr(number)}  # finite


def _items(iterable: Any, depth: int, extra: Extra) -> list[Json]:
    return [encode(item, depth, extra) for item in iterable]


def _tuple(value: Any, depth: int, extra: Extra) -> Json:
    items, fields = _items(tuple.__iter__(value), depth, extra), getattr(type(value), "_fields", None)
    return {"$named": [type(value).__name__, list(fields), items]} if type(fields) is tuple else {"$tuple": items}


def _pairs(tag: str) -> Any:
    return lambda value, depth, extra: {tag: [_items(pair, depth, extra) for pair in dict.items(value)]}


def _sequence(tag: str, iterate: Callable[[Any], Any] = iter) -> Any:
    return lambda value, depth, extra: {tag: _items(iterate(value), depth, extra)}


def _text(tag: str, convert: Callable[[Any], str]) -> Any:
    return lambda value, depth, extra: {tag: convert(value)}


_ENCODERS: dict[Any, Any] = {
    int: _int,
    float: _float,
    str: lambda value, depth, extra: str.__str__(value),
    list: lambda value, depth, extra: _items(list.__iter__(value), depth, extra),
    tuple: _tuple,
    Counter: _pairs("$counter"),
    OrderedDict: _pairs("$ordered"),
    dict: _pairs("$dict"),
    set: _sequence("$set", set.__iter__),
    frozenset: _sequence("$frozenset", frozenset.__iter__),
    deque: _sequence("$deque", deque.__iter__),
    bytes: _text("$bytes", bytes.hex),
    bytearray: _text("$bytearray", bytearray.hex),
    complex: lambda value, depth, extra: {"$complex": [repr(value.real), repr(value.imag)]},
    range: lambda value, depth, extra: {"$range": [hex(part) for part in (value.start, value.stop, value.step)]},
    Decimal: _text("$decimal", Decimal.__str__),
    Fraction: lambda value, depth, extra: {"$fraction": [hex(value.numerator), hex(value.denominator)]},
    datetime.datetime: _text("$datetime", datetime.datetime.isoformat),
    datetime.date: _text("$date", datetime.date.isoformat),
    datetime.time: _text("$time", datetime.time.isoformat),
    datetime.timedelta: lambda value, depth, extra: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    uuid.UUID: _text("$uuid", uuid.UUID.__str__),
    type({}.keys()): _sequence("$keys"),
    type({}.values()): _sequence("$values"),
    type({}.items()): _sequence("$items"),
    type(NotImplemented): lambda value, depth, extra: {"$builtin": "NotImplemented"},
    type(Ellipsis): lambda value, depth, extra: {"$builtin": "Ellipsis"},
    type: lambda value, depth, extra: _builtin_type(value, depth, extra),
}


def _builtin_type(value: Any, depth: int, extra: Extra) -> Json:
    name: str = value.__name__
    return {"$builtin": name} if vars(builtins).get(name) is value else extra(value, depth)
