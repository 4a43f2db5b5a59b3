"""Decoding of values that crossed between processes: exact types of a declared set, or an error."""

from __future__ import annotations

import builtins
import datetime
import keyword
import re
import uuid
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rlm_sandbox.inside.encoding import MAX_DEPTH
from rlm_sandbox.inside.protocol import EncodingError, Json

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

    Args:
        value: Parsed JSON.
        depth: Its depth.
        extra: Tag → decoder of what is not of a declared type.
        named: Builds named tuples: `named_tuple` or `without_names`.

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
