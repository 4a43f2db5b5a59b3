"""Calls from the tests to the program: values cross as declared types, everything else by number."""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from rlm_sandbox.inside import preload
from rlm_sandbox.inside.channel import ENDS_ITERATION, Channel, class_of, error_message, rebuild_error
from rlm_sandbox.inside.heap import Heap
from rlm_sandbox.inside.statements import Changes
from rlm_sandbox.inside.wire import EncodingError, Json, Message, builtin_value

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


class Undecidable(BaseException):
    """An operation of the tests that the program would decide, or that cannot cross; the check fails."""


class Exchange:
    """The examiner's side of the conversation with the program.

    Args:
        channel: Connection to the trainer, which relays.
        classes: Names of the program that are classes; their instances may have operators.
    """

    def __init__(self, channel: Channel, classes: frozenset[str] = frozenset()) -> None:
        self._channel, self._classes, self._lock = channel, classes, threading.RLock()
        self._functions: list[Any] = []
        self._remotes: dict[tuple[int, bool], Remote] = {}
        self._exceptions: dict[str, type[BaseException]] = {}
        self._raised: list[BaseException] = []
        self._fault = ""
        self._callbacks, self._changes = 0, Changes.LATER
        decoders = {"$object": self._object, "$builtin": lambda name: _harmless(builtin_value(name))}
        self._heap = Heap(2, self._encode_object, decoders)
        self.lengths_read: dict[int, int] = {}
        """Lengths that the tests have read, by number of the object, since the last call."""

    def name(self, name: str) -> Any:
        """Return what a name of the program stands for: a value, an exception class or a proxy.

        Raises:
            NameError: The program does not define it.
        """
        value = self.request({"get": name, "of": None})
        if name in self._classes and type(value) is Remote:
            value = self._remote(Remote.number_of(value), constructs=True)
        return value

    def fault(self) -> str:
        """Return why the current check fails in any case, or an empty text; reset it."""
        fault, self._fault = self._fault, ""
        return fault

    def undecidable(self, why: str) -> Undecidable:
        """Return the exception for an undecidable operation; the check fails even if the tests catch it."""
        self._fault = self._fault or why
        return Undecidable(why)

    def request(self, message: Message, constructed: bool = False) -> Any:
        value = self._heap.decode(self._reply(message)["value"])
        if constructed and type(value) is Remote:
            value = self._remote(Remote.number_of(value), constructed=True)
        return value

    def start_statement(self, changes: str) -> None:
        """Apply or discard the changes of containers by the last statement; `changes` is about the next one."""
        if self._changes == Changes.NEVER:
            self._heap.discard()
        self._changes = Changes(changes)
        self._settle()

    def _settle(self) -> None:
        if not self._callbacks:  # a function of the tests inside of a call
            self._heap.settle()

    def _reply(self, message: Message) -> Message:
        """Return the program's reply, after serving its calls of the tests' functions; raise its exception.

        A call that returns None changes containers at once, as `list.sort` does. Other changes are as `Changes` of
        the statement: else a program would pass ``f(xs) == sorted(xs)`` by emptying `xs`.
        """
        with self._lock:
            changes = self._changes
            self._send({"ask": message})
            reply = self._channel.receive()
            while "callback" in reply:
                self._heap.receive(reply, delayed=True)
                self._send({"ask": {"reply": self._call_tests(reply["callback"])}})
                reply = self._channel.receive()
            at_once = changes == Changes.NOW or ("call" in message and reply.get("value", ...) is None)
            self._heap.receive(reply, delayed=not at_once)
            if at_once:
                self._settle()
        if "error" in reply:
            raise self._rebuilt(reply["error"])
        if "end" in reply and message.get("op") == "next":
            raise StopIteration
        return reply

    def call(self, remote: Remote, args: tuple[Any, ...], kwargs: dict[str, Any], constructed: bool) -> Any:
        self.lengths_read.clear()
        message = {"call": "__call__", "of": Remote.number_of(remote), "args": [self.encode(each) for each in args]}
        return self.request(
            {**message, "kwargs": {key: self.encode(value) for key, value in kwargs.items()}}, constructed
        )

    def encode(self, value: Any) -> Json:
        """Return an argument as JSON: a function of the tests by number, a library's function by its name."""
        try:
            return self._heap.encode(value)
        except EncodingError as error:
            raise self.undecidable(f"tests pass the program {error}") from None

    def _send(self, message: Message) -> None:
        try:
            self._channel.send({"ask": self._heap.attach(message["ask"])})
        except EncodingError as error:
            raise self.undecidable(f"tests pass the program {error}") from None

    def _encode_object(self, value: Any, depth: int) -> Json:
        if type(value) is Remote:
            return {"$object": Remote.number_of(value)}
        owner, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        library = sys.modules.get(owner) if owner in sys.stdlib_module_names or owner == "builtins" else None
        if callable(value) and library is not None and getattr(library, str(name), None) is value:
            return {"$import": [owner, name]}
        if callable(value) or isinstance(value, Iterator):
            self._functions.append(value)
            number = len(self._functions) - 1
            shown = [str(getattr(value, each, None) or "") for each in ("__name__", "__doc__")]
            return {"$function": [number, *shown]} if callable(value) else {"$stream": number}
        raise EncodingError(f"an object of type {type(value).__name__}")

    def _object(self, content: Json) -> Any:
        number, kind, names = content
        if kind == "exception":
            return _harmless(self._exceptions.setdefault(names[0], class_of(names, self._exceptions)))
        remote = self._remote(number)
        return {"iterator": stream, "coroutine": awaited}.get(kind, lambda same: same)(remote)

    def _remote(self, number: int, constructed: bool = False, constructs: bool = False) -> Remote:
        key = (number, constructed or constructs)
        if key not in self._remotes:
            self._remotes[key] = Remote(self, number, constructed=constructed, constructs=constructs)
        return self._remotes[key]

    def _rebuilt(self, content: Message) -> BaseException:
        origin = content.get("origin")
        if type(origin) is int and 0 <= origin < len(self._raised):
            return self._raised[origin]
        self._exceptions.setdefault(content["names"][0], class_of(content["names"], self._exceptions))
        return rebuild_error(content, self._exceptions)

    def _call_tests(self, callback: Message) -> Message:
        """Call a function of the tests for the program. A failed assertion in it fails the check in any case."""
        changes, self._callbacks = self._changes, self._callbacks + 1
        try:
            function = self._functions[callback["number"]]
            if not callable(function):
                return {"value": self.encode(next(function))}
            args = [self._heap.decode(value) for value in callback["args"]]
            kwargs = {key: self._heap.decode(value) for key, value in callback["kwargs"].items()}
            return {"value": self.encode(function(*args, **kwargs))}
        except StopIteration:
            return {"end": True}
        except BaseException as error:
            if isinstance(error, AssertionError):
                self._fault = self._fault or f"AssertionError: {error}"[:300]
            self._raised.append(error if not isinstance(error, ENDS_ITERATION) else RuntimeError(str(error)))
            return error_message(error, origin=len(self._raised) - 1)
        finally:
            self._changes, self._callbacks = changes, self._callbacks - 1


def _harmless(value: Any) -> Any:
    """Return a class of exceptions that does not catch a failed assertion of the tests, as `except MyError` would."""
    if isinstance(value, type) and issubclass(value, BaseException) and issubclass(AssertionError, value):
        return type(value.__name__, (value,), {})
    return value
