"""Values that cross between processes: exact types of a declared set as length-framed JSON, never a pickle."""

from __future__ import annotations

import builtins
import datetime
import json
import keyword
import re
import uuid
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

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


MAX_COLLISIONS = 64
"""Largest number of keys with one hash in a dict or set, multiplied along nested ones.

Crafted keys would take minutes to insert. Two sets whose elements collide are compared pair by pair at every level."""

MAX_FRACTION_BITS = 1 << 16
"""Bound of a fraction's parts: to reduce one of 2 million bits takes 5 s."""

Decoders = dict[str, Callable[[Json], Any]]


Named = Callable[[str, list[str], list[Any]], Any]
"""Builds a named tuple from its name, fields and items."""


def named_tuple(name: str, fields: list[str], items: list[Any]) -> Any:
    """Return a named tuple of a new class; raise EncodingError if its name or a field is no identifier.

    With a callable item it is a plain tuple: a field `startswith` would be a method that the program wrote.
    """
    if any(map(callable, items)):
        return tuple(items)
    for word in (name, *fields):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,80}", word) or keyword.iskeyword(word):
            raise EncodingError("no field names")
    return namedtuple(name, fields, rename=True)(*items)  # type: ignore[misc]


def without_names(name: str, fields: list[str], items: list[Any]) -> Any:
    """Return a tuple. For the trainer: a class for each of 40,000 named tuples takes 4 s, outside all limits."""
    return tuple(items)


def decode(value: Json, depth: int = 0, extra: Decoders | None = None, named: Named = named_tuple) -> Any:
    """Return the value that JSON from another process represents, in exact declared types.

    Raises:
        EncodingError: It represents none.
    """
    if depth > MAX_DEPTH:
        raise EncodingError("a value nested too deeply")
    if type(value) is list:
        return [decode(item, depth + 1, extra, named) for item in value]
    if type(value) is not dict:
        return value
    tag, content = next(iter(value.items())) if len(value) == 1 else ("", [])
    try:
        if extra and tag in extra:
            return extra[tag](content)
        if tag in _OF_CONTENT:
            return _OF_CONTENT[tag](content)
        if tag in _OF_ITEMS:
            return _OF_ITEMS[tag](_decoded_items(content, depth, extra, named))
        if tag == "$named":
            name, fields, items = content
            return named(name, fields, _decoded_items(items, depth, extra, named))
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        raise EncodingError(f"no {tag[1:]}") from None
    raise EncodingError("no such type")


def _decoded_items(content: Json, depth: int, extra: Decoders | None, named: Named) -> list[Any]:
    if type(content) is not list:
        raise EncodingError("no list of items")
    return [decode(item, depth + 1, extra, named) for item in content]


def _distinct(items: list[Any]) -> list[Any]:
    """Return `items`; raise if many have the same hash."""
    if _collisions(items) > MAX_COLLISIONS:
        raise EncodingError("too many hash collisions (clashing keys)")
    return items


def _collisions(items: Iterable[Any]) -> int:
    """Return the largest number of `items` with one hash, times that inside of these."""
    counts: dict[int, int] = {}
    items = list(items)
    for item in items:
        number = hash(item)
        counts[number] = counts.get(number, 0) + 1
    largest = max(counts.values(), default=0)
    if not 1 < largest <= MAX_COLLISIONS:
        return largest
    return max(counts[hash(item)] * _inside(item) for item in items if counts[hash(item)] > 1)


def _inside(item: Any) -> int:
    if isinstance(item, frozenset):
        return max(1, _collisions(item))
    return max(map(_inside, item), default=1) if isinstance(item, tuple) else 1


def _mapping(pairs: list[Any]) -> dict[Any, Any]:
    _distinct([key for key, _ in pairs])
    return dict(pairs)


def builtin_value(name: str) -> Any:
    """Return a built-in type, NotImplemented or Ellipsis, by name; raise EncodingError for any other name."""
    value = vars(builtins).get(name)
    if not isinstance(value, type) and name not in ("NotImplemented", "Ellipsis"):
        raise EncodingError("no built-in type")
    return value


def _fraction(content: list[str]) -> Fraction:
    parts = [int(part, 16) for part in content]
    if any(part.bit_length() > MAX_FRACTION_BITS for part in parts):
        raise EncodingError("a fraction with too many digits")
    return Fraction(*parts)


_OF_CONTENT: dict[str, Callable[[Any], Any]] = {
    "$int": lambda content: int(content, 16),
    "$float": float,
    "$bytes": bytes.fromhex,
    "$bytearray": bytearray.fromhex,
    "$complex": lambda content: complex(float(content[0]), float(content[1])),
    "$range": lambda content: range(*(int(part, 16) for part in content)),
    "$decimal": Decimal,
    "$fraction": _fraction,
    "$datetime": datetime.datetime.fromisoformat,
    "$date": datetime.date.fromisoformat,
    "$time": datetime.time.fromisoformat,
    "$timedelta": lambda content: datetime.timedelta(*content),
    "$uuid": uuid.UUID,
    "$builtin": builtin_value,
}
_OF_ITEMS: dict[str, Callable[[list[Any]], Any]] = {
    "$tuple": tuple,
    "$dict": _mapping,
    "$counter": lambda pairs: Counter(_mapping(pairs)),
    "$ordered": lambda pairs: OrderedDict(_mapping(pairs)),
    "$set": lambda items: set(_distinct(items)),
    "$frozenset": lambda items: frozenset(_distinct(items)),
    "$deque": deque,
    "$keys": lambda items: dict.fromkeys(_distinct(items)).keys(),
    "$values": lambda items: dict(enumerate(items)).values(),
    "$items": lambda pairs: _mapping(pairs).items(),
}
