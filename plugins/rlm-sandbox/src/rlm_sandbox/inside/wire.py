"""What crosses the wall: length-framed JSON of exact built-in types. Never an object, never a pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DEPTH = 60
"""How deep a value may be nested."""
CLASHES = 64
"""Keys of one hash a dict or set may have: crafted ones would keep whoever rebuilds it busy for minutes."""
_EXACT = 2**53
"""Below this every JSON reader agrees on an integer."""

Json = Any
Message = dict[str, Json]


class Unsendable(Exception):
    """A value that is no built-in type, is nested too deeply, or is no value at all."""


def pack(message: Mapping[str, Json]) -> bytes:
    """A message as it travels: its length in four bytes, then JSON."""
    data = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(data).to_bytes(4, "big") + data


def unpack(data: bytes) -> Message:
    """The message that `data` (without its length) is.

    Raises:
        Unsendable: It is none.
    """
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if type(message) is not dict:
        raise Unsendable("not a message")
    return message


def encode(value: object, depth: int = 0) -> Json:
    """`value` as JSON; of a subclass (a Counter, a named tuple) only the built-in value it is made of.

    >>> encode([1, (2.5, None), {"a": {3}}, 2**60, b"x"])
    [1, {'$tuple': [2.5, None]}, {'$dict': [['a', {'$set': [3]}]]}, {'$int': '0x1000000000000000'}, {'$bytes': '78'}]
    """
    if depth > DEPTH:
        raise Unsendable("a value nested too deeply")
    if value is None or type(value) in (bool, str):
        return value
    for kind, written in _WRITTEN.items():
        if isinstance(value, kind):
            return written(value, depth + 1)
    raise Unsendable(f"a value of type {type(value).__name__}")


def _whole(value: Any, depth: int) -> Json:
    number = int.__int__(value)
    return number if abs(number) < _EXACT else {"$int": hex(number)}


def _real(value: Any, depth: int) -> Json:
    number = float.__float__(value)
    return number if number - number == 0 else {"$float": repr(number)}  # neither infinite nor NaN


def _each(iterable: Any, depth: int) -> list[Json]:
    return [encode(item, depth) for item in iterable]


def _pairs(value: Any, depth: int) -> Json:
    return {"$dict": [[encode(k, depth), encode(v, depth)] for k, v in dict.items(value)]}


_WRITTEN: dict[Any, Any] = {
    int: _whole,
    float: _real,
    str: lambda value, depth: str.__str__(value),
    list: lambda value, depth: _each(list.__iter__(value), depth),
    tuple: lambda value, depth: {"$tuple": _each(tuple.__iter__(value), depth)},
    dict: _pairs,
    set: lambda value, depth: {"$set": _each(set.__iter__(value), depth)},
    frozenset: lambda value, depth: {"$frozenset": _each(frozenset.__iter__(value), depth)},
    bytes: lambda value, depth: {"$bytes": bytes.hex(value)},
    bytearray: lambda value, depth: {"$bytes": bytearray.hex(value)},
    complex: lambda value, depth: {"$complex": [repr(value.real), repr(value.imag)]},
}


def decode(value: Json, depth: int = 0) -> Any:
    """The value that JSON from beyond the wall stands for: exact built-in types, whoever sent it.

    Raises:
        Unsendable: It stands for none.
    """
    if depth > DEPTH:
        raise Unsendable("a value nested too deeply")
    if type(value) is list:
        return [decode(item, depth + 1) for item in value]
    if type(value) is not dict:
        return value
    ((tag, content),) = value.items() if len(value) == 1 else (("", None),)
    if tag not in _READ:
        raise Unsendable("no such type")
    try:
        return _READ[tag](content, depth + 1)
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError):
        raise Unsendable(f"no {tag[1:]}") from None


def _hashed(items: list[Any]) -> list[Any]:
    counts: dict[int, int] = {}
    for item in items:
        number = hash(item)
        counts[number] = counts.get(number, 0) + 1
    if max(counts.values(), default=0) > CLASHES:
        raise Unsendable("keys made to clash")
    return items


def _mapping(content: Json, depth: int) -> dict[Any, Any]:
    pairs = [(decode(key, depth), decode(item, depth)) for key, item in content]
    _hashed([key for key, _ in pairs])
    return dict(pairs)


_READ: dict[str, Any] = {
    "$int": lambda content, depth: int(content, 16),
    "$float": lambda content, depth: float(content),
    "$tuple": lambda content, depth: tuple(decode(item, depth) for item in content),
    "$dict": _mapping,
    "$set": lambda content, depth: set(_hashed([decode(item, depth) for item in content])),
    "$frozenset": lambda content, depth: frozenset(_hashed([decode(item, depth) for item in content])),
    "$bytes": lambda content, depth: bytes.fromhex(content),
    "$complex": lambda content, depth: complex(float(content[0]), float(content[1])),
}
