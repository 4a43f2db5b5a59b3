"""Protocol between trainer and sandbox: length-framed JSON of exact built-in types. Never an object, never a pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 60
"""Largest nesting depth of a value."""
MAX_COLLISIONS = 64
"""Largest number of keys with one hash in a dict or set; crafted keys would take minutes to insert."""
_EXACT = 2**53
"""Bound of the integers that every JSON reader represents exactly."""

Json = Any
Message = dict[str, Json]


class EncodingError(Exception):
    """A value of a type that is not built in, nested too deeply, or malformed."""


def pack(message: Mapping[str, Json]) -> bytes:
    """Return a message in wire format: its length in four bytes, then JSON."""
    data = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(data).to_bytes(4, "big") + data


def unpack(data: bytes) -> Message:
    """Parse the message in `data` (without its length).

    Raises:
        EncodingError: It is malformed.
    """
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if type(message) is not dict:
        raise EncodingError("not a message")
    return message


def encode(value: object, depth: int = 0) -> Json:
    """Return `value` as JSON; an instance of a subclass (a Counter, a named tuple) becomes the built-in value.

    >>> encode([1, (2.5, None), {"a": {3}}, 2**60, b"x"])
    [1, {'$tuple': [2.5, None]}, {'$dict': [['a', {'$set': [3]}]]}, {'$int': '0x1000000000000000'}, {'$bytes': '78'}]
    """
    if depth > MAX_DEPTH:
        raise EncodingError("a value nested too deeply")
    if value is None or type(value) in (bool, str):
        return value
    for built_in_type, encoder in _ENCODERS.items():
        if isinstance(value, built_in_type):
            return encoder(value, depth + 1)
    raise EncodingError(f"a value of type {type(value).__name__}")


def _encode_int(value: Any, depth: int) -> Json:
    number = int.__int__(value)
    return number if abs(number) < _EXACT else {"$int": hex(number)}


def _encode_float(value: Any, depth: int) -> Json:
    number = float.__float__(value)
    return number if number - number == 0 else {"$float": repr(number)}  # finite


def _encode_items(iterable: Any, depth: int) -> list[Json]:
    return [encode(item, depth) for item in iterable]


def _encode_dict(value: Any, depth: int) -> Json:
    return {"$dict": [[encode(k, depth), encode(v, depth)] for k, v in dict.items(value)]}


_ENCODERS: dict[Any, Any] = {
    int: _encode_int,
    float: _encode_float,
    str: lambda value, depth: str.__str__(value),
    list: lambda value, depth: _encode_items(list.__iter__(value), depth),
    tuple: lambda value, depth: {"$tuple": _encode_items(tuple.__iter__(value), depth)},
    dict: _encode_dict,
    set: lambda value, depth: {"$set": _encode_items(set.__iter__(value), depth)},
    frozenset: lambda value, depth: {"$frozenset": _encode_items(frozenset.__iter__(value), depth)},
    bytes: lambda value, depth: {"$bytes": bytes.hex(value)},
    bytearray: lambda value, depth: {"$bytes": bytearray.hex(value)},
    complex: lambda value, depth: {"$complex": [repr(value.real), repr(value.imag)]},
}


def decode(value: Json, depth: int = 0) -> Any:
    """Return the value that JSON from the sandbox represents, in exact built-in types.

    Raises:
        EncodingError: It represents none.
    """
    if depth > MAX_DEPTH:
        raise EncodingError("a value nested too deeply")
    if type(value) is list:
        return [decode(item, depth + 1) for item in value]
    if type(value) is not dict:
        return value
    ((tag, content),) = value.items() if len(value) == 1 else (("", None),)
    if tag not in _DECODERS:
        raise EncodingError("no such type")
    try:
        return _DECODERS[tag](content, depth + 1)
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError):
        raise EncodingError(f"no {tag[1:]}") from None


def _check_collisions(items: list[Any]) -> list[Any]:
    counts: dict[int, int] = {}
    for item in items:
        number = hash(item)
        counts[number] = counts.get(number, 0) + 1
    if max(counts.values(), default=0) > MAX_COLLISIONS:
        raise EncodingError("too many hash collisions (clashing keys)")
    return items


def _decode_dict(content: Json, depth: int) -> dict[Any, Any]:
    pairs = [(decode(key, depth), decode(item, depth)) for key, item in content]
    _check_collisions([key for key, _ in pairs])
    return dict(pairs)


_DECODERS: dict[str, Any] = {
    "$int": lambda content, depth: int(content, 16),
    "$float": lambda content, depth: float(content),
    "$tuple": lambda content, depth: tuple(decode(item, depth) for item in content),
    "$dict": _decode_dict,
    "$set": lambda content, depth: set(_check_collisions([decode(item, depth) for item in content])),
    "$frozenset": lambda content, depth: frozenset(_check_collisions([decode(item, depth) for item in content])),
    "$bytes": lambda content, depth: bytes.fromhex(content),
    "$complex": lambda content, depth: complex(float(content[0]), float(content[1])),
}
