"""What crosses the wall: values come back as they were, and nothing else comes at all."""

from __future__ import annotations

import time
from typing import Any

import pytest
from rlm_sandbox.inside.wire import Unsendable, decode, encode, pack, unpack

VALUES: list[Any] = [
    None, True, False, 0, -1, 2**53, -(2**300), 1.5, 1e300, "", "é\ud800", b"\x00", [], [[1], (2,)], {}, {1: "a"},
    {"1": None}, {(1, (2,)): {3, 4}}, set(), frozenset({1}), 1 + 2j, float("inf"), -float("inf"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_it_comes_back_as_it_was(value: Any) -> None:
    back = decode(unpack(pack({"v": encode(value)})[4:])["v"])
    assert (type(back), back) == (type(value), value)


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def test_of_a_subclass_only_the_value_comes() -> None:
    assert type(decode(encode(Liar(3)))) is int
    assert decode(encode(Liar(3))) != 5


@pytest.mark.parametrize("value", [object(), len, range(3), Liar, [object()], {"a": lambda: 0}])
def test_nothing_else_is_sent(value: Any) -> None:
    with pytest.raises(Unsendable):
        encode(value)


@pytest.mark.parametrize(
    "json",
    [{"$eval": "1"}, {}, {"$int": 5}, {"$int": "x"}, {"$set": [[1]]}, {"$dict": [[1]]}, {"$dict": 7}, {"$complex": []},
     {"$bytes": "zz"}, {"a": 1, "b": 2}, {"$set": [{"$dict": []}]}, {"$float": [1]}],
)  # fmt: skip
def test_what_is_no_value_is_refused(json: Any) -> None:
    with pytest.raises(Unsendable):
        decode(json)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"1" * 5000, b"[" * 100_000])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(Unsendable):
        unpack(data)


def test_depth_and_clashes_are_bounded() -> None:
    nested: Any = []
    for _ in range(100):
        nested = [nested]
    for made in (lambda: encode(nested), lambda: decode(nested)):
        with pytest.raises(Unsendable):
            made()
    start = time.process_time()
    for tag in ("$set", "$frozenset"):
        with pytest.raises(Unsendable, match="clash"):
            decode({tag: [{"$int": hex(k * (2**61 - 1))} for k in range(1, 40_000)]})
    with pytest.raises(Unsendable, match="clash"):
        decode({"$dict": [[{"$int": hex(k * (2**61 - 1))}, 0] for k in range(1, 40_000)]})
    assert time.process_time() - start < 60  # a hang guard: hash collisions would take hours
