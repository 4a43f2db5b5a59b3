"""The protocol: round trips of values, and rejection of everything else."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from rlm_sandbox.inside.wire import EncodingError, decode, encode, pack, unpack

VALUES: list[Any] = [
    None, True, False, 0, -1, 2**53, -(2**300), 1.5, 1e300, "", "é\ud800", b"\x00", [], [[1], (2,)], {}, {1: "a"},
    {"1": None}, {(1, (2,)): {3, 4}}, set(), frozenset({1}), 1 + 2j, float("inf"), -float("inf"), bytearray(b"a"),
    Decimal("1.10"), Decimal("-Infinity"), Fraction(-1, 3), range(1, 2**60, 3), deque([1, [2]]), Counter("aab"),
    OrderedDict(b=1, a=2), datetime(2024, 2, 29, 1, tzinfo=UTC), datetime(2024, 1, 1).date(),
    datetime(1, 1, 1, 2).time(), timedelta(-1, 5, 7), UUID(int=5), int, ValueError, NotImplemented, ...,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_round_trip(value: Any) -> None:
    back = decode(unpack(pack({"v": encode(value)})[4:])["v"])
    assert (type(back), back) == (type(value), value)


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def test_subclass_becomes_the_built_in_value() -> None:
    assert type(decode(encode(Liar(3)))) is int
    assert decode(encode(Liar(3))) != 5


@pytest.mark.parametrize("value", [object(), len, map(int, []), Liar, [object()], {"a": lambda: 0}])
def test_other_types_are_rejected(value: Any) -> None:
    with pytest.raises(EncodingError):
        encode(value)


@pytest.mark.parametrize(
    "json",
    [{"$eval": "1"}, {}, {"$int": 5}, {"$int": "x"}, {"$set": [[1]]}, {"$dict": [[1]]}, {"$dict": 7}, {"$complex": []},
     {"$bytes": "zz"}, {"a": 1, "b": 2}, {"$set": [{"$dict": []}]}, {"$float": [1]}, {"$named": ["P", ["class"], [1]]},
     {"$named": ["P(): 0", ["x"], [1]]}, {"$named": ["P", ["x"], []]}, {"$builtin": "eval"}, {"$builtin": "open"},
     {"$decimal": "x"}, {"$fraction": ["1", "0"]}, {"$date": "x"}, {"$range": []},
     {"$keys": [[1]]}, {"$import": ["os", "system"]}, {"$object": [0, "object", []]}],
)  # fmt: skip
def test_malformed_values_are_rejected(json: Any) -> None:
    with pytest.raises(EncodingError):
        decode(json)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"1" * 5000, b"[" * 100_000])
def test_malformed_messages_are_rejected(data: bytes) -> None:
    with pytest.raises(EncodingError):
        unpack(data)


def _nested(depth: int, number: int) -> Any:
    """Return one of many sets of one hash, which differ in their last leaf: hash(-1) is hash(-2)."""
    if depth == 0:
        return {"$tuple": [-1 - (number >> bit & 1) for bit in range(8)]}
    return {"$frozenset": [_nested(depth - 1, other) for other in (*range(29), 128 + number)]}


def test_depth_and_collisions_are_bounded() -> None:
    nested: Any = []
    for _ in range(100):
        nested = [nested]
    for function in (lambda: encode(nested), lambda: decode(nested)):
        with pytest.raises(EncodingError):
            function()
    start = time.process_time()
    for tag in ("$set", "$frozenset"):
        with pytest.raises(EncodingError, match="clash"):
            decode({tag: [{"$int": hex(k * (2**61 - 1))} for k in range(1, 40_000)]})
    with pytest.raises(EncodingError, match="clash"):
        decode({"$dict": [[{"$int": hex(k * (2**61 - 1))}, 0] for k in range(1, 40_000)]})
    with pytest.raises(EncodingError, match="clash"):
        decode({"$set": [_nested(2, number) for number in range(30)]})
    assert time.process_time() - start < 60  # a hang guard: hash collisions would take hours
