"""Mutable containers that tests and program share, as in one process: a change on either side reaches the other.

A container crosses as a number. Each message has the contents of those that are new to the other side, or have changed.
A container stays shared while both sides hold it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from operator import is_
from sys import getrefcount
from typing import Any

from rlm_sandbox.inside.wire import (
    ENCODERS,
    ByValue,
    Decoders,
    Encoder,
    EncodingError,
    Extra,
    Json,
    Message,
    declared_type,
    decode,
    encode,
)

_HELD_BY_A_DICT = {0: list[int]()}
_UNHELD = getrefcount(_HELD_BY_A_DICT[0])
"""Reference count of a container that only a dict holds."""


class Heap(ByValue):
    """The containers that this side and the other one hold, by number.

    Args:
        first_number: 1 on one side and 2 on the other, so that their numbers differ.
        undeclared: Encodes a value that is not of a declared type.
        decoders: Tag → decoder of such values.
    """

    def __init__(self, first_number: int, undeclared: Extra, decoders: Decoders) -> None:
        self.undeclared = undeclared  # type: ignore[assignment,method-assign]
        self._next, self._decoders = first_number, {**decoders, "$shared": self._referent}
        self._containers: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._agreed: dict[int, Any] = {}
        """The items of each container when both sides last had the same."""
        self._unsent: list[int] = []
        self._forgotten: list[int] = []
        self._discarded: list[int] = []
        self._arriving: set[int] = set()
        self._waiting: dict[int, Json] = {}
        self._copies: dict[int, Any] = {}

    def encode(self, value: object) -> Json:
        """Return `value` as JSON; `attach` adds the contents of its containers."""
        return encode(value, sender=self)

    def decode(self, value: Json) -> Any:
        """Return the value that JSON of a received message represents."""
        return decode(value, extra=self._decoders)

    def container(self, value: Any, depth: int, encoder: Encoder) -> Json:
        """Return the number of a container in place of its items."""
        number = self._numbers.get(id(value))
        if number is None:
            number, self._next = self._next, self._next + 2
            self._add(number, value)
            self._unsent.append(number)
        return {"$shared": number}

    def attach(self, message: Message) -> Message:
        """Return `message` with what the other side lacks: contents, and the numbers that are not shared any more.

        Raises:
            EncodingError: A new container has an item that cannot cross. The message must not be sent.
        """
        self._remove_forgotten()
        contents: dict[int, Json] = {}
        agreed: dict[int, Any] = {}
        unshared, self._discarded = self._discarded, []
        self._unsent += [number for number in self._agreed if self._has_changed(number)]
        for number in self._unsent:  # encoding appends the new containers inside
            try:
                agreed[number] = _items(self._containers[number])
                contents[number] = self._contents(number)
            except EncodingError:
                if number not in self._agreed:
                    self._drop_unsent()
                    raise
                unshared.append(number)
        self._unsent = []
        self._agreed |= {number: agreed[number] for number in contents}
        unshared += [n for n in self._agreed if n not in contents and getrefcount(self._containers[n]) <= _UNHELD]
        self._forget(unshared)
        self._remove_forgotten()
        return {**message, "heap": list(contents.items()), "forget": unshared}

    def receive(self, message: Message, delayed: bool = False) -> None:
        """Apply the changes of a message, before its values are decoded.

        Args:
            message: From the other side.
            delayed: Changes of known containers wait for `settle`. Until then values have copies of these containers.

        Raises:
            EncodingError: They are malformed.
        """
        self._remove_forgotten()
        contents: dict[int, Json] = dict(message.get("heap", ()))
        self._arriving = contents.keys() - self._containers.keys()
        for number in self._arriving:
            self._add(number, _new(contents[number]))
        self._copies = {}
        for number, content in contents.items():
            self._waiting.pop(number, None)
            if delayed and number not in self._arriving:
                self._waiting[number] = content
        for number in contents.keys() - self._waiting.keys():
            self._fill(number, contents[number])
        self._forget(message.get("forget", ()))

    def settle(self) -> None:
        if self._waiting:
            waiting, self._waiting, self._copies = self._waiting, {}, {}
            for number, content in waiting.items():
                self._fill(number, content)

    def discard(self) -> None:
        """Drop the delayed changes; their containers are not shared any more."""
        numbers, self._waiting, self._copies = list(self._waiting), {}, {}
        self._forget(numbers)
        self._discarded += numbers

    def _referent(self, number: int) -> Any:
        """Return a container; while changes are delayed, a copy with its new items, and so of those inside."""
        if not self._waiting or number in self._arriving:
            return self._containers[number]
        if number not in self._copies:
            content = self._waiting[number] if number in self._waiting else self._contents(number)
            self._copies[number] = _new(content)
            overwrite(self._copies[number], self.decode(content))
        return self._copies[number]

    def _contents(self, number: int) -> Json:
        container = self._containers[number]
        return ENCODERS[declared_type(container)](container, 1, self)

    def _has_changed(self, number: int) -> bool:
        before, now = self._agreed[number], _items(self._containers[number])
        if type(now) is bytes:
            return bool(now != before)
        return len(now) != len(before) or not all(map(is_, now, before))

    def _fill(self, number: int, content: Json) -> None:
        container = self._containers[number]
        overwrite(container, self.decode(content))
        if number in self._agreed or number in self._arriving:
            self._agreed[number] = _items(container)

    def _add(self, number: int, container: Any) -> None:
        self._containers[number], self._numbers[id(container)] = container, number

    def _forget(self, numbers: Any) -> None:
        """End the sharing of containers; messages and delayed changes that name them can still be decoded."""
        for number in numbers:
            if self._agreed.pop(number, None) is not None:
                del self._numbers[id(self._containers[number])]
                self._forgotten.append(number)

    def _remove_forgotten(self) -> None:
        if not self._waiting:
            for number in self._forgotten:
                del self._containers[number]
            self._forgotten = []

    def _drop_unsent(self) -> None:
        for number in self._unsent:
            if number not in self._agreed:
                del self._numbers[id(self._containers.pop(number))]
        self._unsent = []


def _new(content: Json) -> Any:
    """Return an empty container of the type that `content` has."""
    if type(content) is list:
        return []
    kind = _TYPES.get(next(iter(content), "")) if type(content) is dict else None
    if kind is None:
        raise EncodingError("no container")
    return kind()


def overwrite(old: Any, new: Any) -> None:
    """Give a container the items of another one of its type.

    >>> row, counts = [1], Counter(a=1); overwrite(row, [2, 3]); overwrite(counts, Counter(b=2)); row, counts
    ([2, 3], Counter({'b': 2}))
    """
    kind = declared_type(old)
    if kind is not type(new):
        raise EncodingError("a container of another type")
    if kind in _UPDATES:
        kind.clear(old)
        _UPDATES[kind](old, new)
    else:
        kind.__setitem__(old, slice(None), new)


def _items(container: Any) -> Any:
    """Return the items of a container, to compare them by identity later; no method of a subclass is called."""
    kind = declared_type(container)
    if kind is bytearray:
        return bytes(container)
    if issubclass(kind, dict):
        return [*kind.keys(container), *kind.values(container)]
    return list(kind.__iter__(container))


_TYPES: dict[str, Any] = {
    "$dict": dict,
    "$counter": Counter,
    "$ordered": OrderedDict,
    "$set": set,
    "$deque": deque,
    "$bytearray": bytearray,
}
_UPDATES: dict[Any, Any] = {
    dict: dict.update,
    Counter: dict.update,
    OrderedDict: OrderedDict.update,
    set: set.update,
    deque: deque.extend,
}
