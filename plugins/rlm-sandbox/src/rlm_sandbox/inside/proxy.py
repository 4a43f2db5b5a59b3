"""Proxies of the program's objects, in the process of the tests. They take part in no comparison."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from rlm_sandbox.inside import preload

READING: dict[str, Callable[..., Any]] = {
    "len": len,
    "iter": iter,
    "next": next,
    "reversed": reversed,
    "str": str,
    "repr": repr,
    "isinstance": isinstance,
    "enter": lambda owner: type(owner).__enter__(owner),
    "exit": lambda owner, *details: type(owner).__exit__(owner, *details),
}
"""Operators of any object: they hand it no value of the tests."""

ARITHMETIC = tuple("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split())  # noqa: SIM905

OF_CONSTRUCTED: dict[str, Callable[..., Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "round": round,
    "abs": abs,
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "contains": operator.contains,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "divmod": divmod,
    **{name: getattr(operator, f"{name}_" if name in ("and", "or") else name) for name in ARITHMETIC},
}
"""Operators only of objects that tests construct from a declared class: their operands may be values of the tests."""

PREDICATES = frozenset(
    name for kind in (str, set, float) for name in dir(kind) if name.startswith("is") or name.endswith("swith")
)
"""Methods of built-in types that only return True or False: tests that call them expect a value of that type."""

REPORTS = frozenset(name for kind in (str, frozenset, tuple, Decimal) for name in dir(kind) if name[0] != "_")
"""Methods of built-in values: on an object of the program, one with operands could return what the tests expect."""

REFLECTED = (*ARITHMETIC, "divmod")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

OPERATORS = {**READING, **OF_CONSTRUCTED, "await": preload.run}


_END = object()
_VISIBLE = ("__name__", "__qualname__", "__wrapped__", "__doc__")


class Remote:
    """Proxy of a function, class or object of the program.

    Attributes, calls, iteration, length and text are asked of the program. Operators with operands are only for
    objects that the tests construct from a class of theirs: elsewhere an operand would be an expected value. It is
    unequal to every value, and a comparison of two proxies makes the check fail.
    """

    def __init__(self, exchange: Any, number: int, *, constructed: bool = False, constructs: bool = False) -> None:
        object.__setattr__(self, "_remote", (exchange, number, constructed, constructs))

    @staticmethod
    def number_of(remote: Remote) -> int:
        """Return the number of the object in the program."""
        return int(object.__getattribute__(remote, "_remote")[1])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        exchange, _, _, constructs = self._remote
        return exchange.call(self, args, kwargs, constructs)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute not in _VISIBLE:
            raise AttributeError(attribute)
        exchange, number, constructed, named = self._remote
        if attribute in PREDICATES and not constructed:
            raise exchange.undecidable(f"`{attribute}` of an object that the program returned: it is no text or set")
        value = exchange.request({"get": attribute, "of": number})
        unknown = type(value) is Remote and not constructed and not named
        return _without_operands(attribute, value) if unknown and attribute in REPORTS else value

    def __setattr__(self, attribute: str, value: Any) -> None:
        exchange, number, _, _ = self._remote
        exchange.request({"set": attribute, "of": number, "value": exchange.encode(value)})

    def __instancecheck__(self, instance: Any) -> bool:
        if type(instance) is not Remote:
            return False
        exchange = self._remote[0]
        answer = exchange.request({"op": "isinstance", "args": [exchange.encode(instance), exchange.encode(self)]})
        return answer is True

    def __bool__(self) -> bool:
        return _operate("bool", self) is True if self._remote[2] else True

    def __hash__(self) -> int:
        return id(self)


def _operate(name: str, remote: Remote, *operands: Any, reflected: bool = False) -> Any:
    exchange, _, constructed, _ = remote._remote
    both_remote = all(type(operand) is Remote for operand in operands)
    if name not in READING and not constructed and not (operands and both_remote):
        raise exchange.undecidable(f"`{name}` of an object that the program returned: it has no declared type")
    args = [exchange.encode(value) for value in ((*operands, remote) if reflected else (remote, *operands))]
    return exchange.request({"op": name, "args": args})


def _operator(name: str, reflected: bool = False) -> Any:
    def method(self: Remote, *operands: Any) -> Any:
        return _operate(name, self, *operands, reflected=reflected)

    return method


def _without_operands(name: str, method: Remote) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            raise method._remote[0].undecidable(
                f"`{name}` of an object that the program returned: it is no text or set"
            )
        return method()

    return call


def _length(self: Remote) -> Any:
    length = _operate("len", self)
    self._remote[0].lengths_read[Remote.number_of(self)] = length
    return length


def _items(self: Remote) -> Iterator[Any]:
    return _counted(self, _operate("iter", self))


def _counted(remote: Remote, items: Iterator[Any]) -> Iterator[Any]:
    """Yield `items`; their number must be the length that the tests have read, if nothing was called in between."""
    count = 0
    while (value := next(items, _END)) is not _END:
        count += 1
        yield value
    exchange = remote._remote[0]
    if exchange.lengths_read.get(Remote.number_of(remote), count) != count:
        raise exchange.undecidable("an object of the program has another length than items")


def _exit(self: Remote, kind: Any, error: Any, trace: Any) -> bool:
    """Leave a `with` block; the program may suppress any exception but a failed assertion of the tests."""
    suppressed = _operate("exit", self, kind, None, None) is True
    if suppressed and isinstance(error, AssertionError):
        raise self._remote[0].undecidable(f"AssertionError: {error}"[:300]) from None
    return suppressed


def _comparison(name: str) -> Any:
    def method(self: Remote, other: Any) -> Any:
        if type(other) is not Remote and name in ("eq", "ne"):
            return name == "ne"  # an object of the program is none of the declared values
        raise self._remote[0].undecidable(f"`{name}` of objects of the program: compare their values")

    return method


for _name in [*READING, *OF_CONSTRUCTED]:
    if _name != "bool":
        setattr(Remote, f"__{_name}__", _operator(_name))
for _name in REFLECTED:
    setattr(Remote, f"__r{_name}__", _operator(_name, reflected=True))
for _name in COMPARISONS:
    setattr(Remote, f"__{_name}__", _comparison(_name))
Remote.__len__, Remote.__iter__ = _length, _items  # type: ignore[attr-defined]
Remote.__exit__ = _exit  # type: ignore[attr-defined]
Remote.__doc__ = property(lambda remote: remote.__getattr__("__doc__"))  # type: ignore[assignment]


async def awaited(remote: Remote) -> Any:
    """Return the result of a coroutine of the program, which runs to its end in the program's process."""
    exchange = remote._remote[0]
    return exchange.request({"op": "await", "args": [exchange.encode(remote)]})


def stream(remote: Remote) -> Iterator[Any]:
    """Yield the values of an iterator of the program."""
    sent = None
    while True:
        try:
            value = remote.__next__() if sent is None else remote.send(sent)
        except StopIteration:
            return
        sent = yield value
