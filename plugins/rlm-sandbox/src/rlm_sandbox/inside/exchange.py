"""Calls from the tests to the program: values cross as declared types, everything else by number."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

from rlm_sandbox.inside.channel import ENDS_ITERATION, Channel, class_of, error_message, rebuild_error
from rlm_sandbox.inside.heap import Heap
from rlm_sandbox.inside.proxy import Remote, awaited, stream
from rlm_sandbox.inside.statements import Changes
from rlm_sandbox.inside.wire import EncodingError, Json, Message, builtin_value


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
        """Send a request to the program and return its value."""
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
        """Call an object of the program."""
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
