"""Calls from the tests to the program: values cross as declared types, everything else by number."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

from rlm_sandbox.inside.channel import Channel
from rlm_sandbox.inside.decoding import builtin_value, decode
from rlm_sandbox.inside.encoding import encode
from rlm_sandbox.inside.errors import ENDS_ITERATION, class_of, error_message, rebuild_error
from rlm_sandbox.inside.mutation import overwrite
from rlm_sandbox.inside.protocol import Json, Message
from rlm_sandbox.inside.proxy import Remote, awaited, stream


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
        return self._decode(self._reply(message)["value"], constructed)

    def _reply(self, message: Message) -> Message:
        """Return the program's reply, after serving its calls of the tests' functions; raise its exception."""
        with self._lock:
            self._channel.send({"ask": message})
            reply = self._channel.receive()
            while "callback" in reply:
                self._channel.send({"ask": {"reply": self._call_tests(reply["callback"])}})
                reply = self._channel.receive()
        if "error" in reply:
            raise self._rebuilt(reply["error"])
        if "end" in reply and message.get("op") == "next":
            raise StopIteration
        return reply

    def call(self, remote: Remote, args: tuple[Any, ...], kwargs: dict[str, Any], constructed: bool) -> Any:
        """Call an object of the program. If it returns None, changes of mutable arguments are made here too."""
        self.lengths_read.clear()
        message = {"call": "__call__", "of": Remote.number_of(remote), "args": [self.encode(each) for each in args]}
        reply = self._reply({**message, "kwargs": {key: self.encode(value) for key, value in kwargs.items()}})
        if reply["value"] is None and "after" in reply:
            after_args, after_kwargs = reply["after"]
            for old, new in zip(args, after_args, strict=True):
                overwrite(old, self._decode(new))
            for key, new in after_kwargs.items():
                overwrite(kwargs[key], self._decode(new))
        return self._decode(reply["value"], constructed)

    def encode(self, value: Any) -> Json:
        """Return an argument as JSON: a function of the tests by number, a library's function by its name."""
        return encode(value, extra=self._encode_object)

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
        raise self.undecidable(f"tests pass the program an object of type {type(value).__name__}")

    def _decode(self, value: Json, constructed: bool = False) -> Any:
        def of_number(content: Json) -> Any:
            number, kind, names = content
            if kind == "exception":
                return self._exception(names)
            remote = self._remote(number, constructed)
            return {"iterator": stream, "coroutine": awaited}.get(kind, lambda same: same)(remote)

        return decode(value, extra={"$object": of_number, "$builtin": lambda name: _harmless(builtin_value(name))})

    def _remote(self, number: int, constructed: bool = False, constructs: bool = False) -> Remote:
        key = (number, constructed or constructs)
        if key not in self._remotes:
            self._remotes[key] = Remote(self, number, constructed=constructed, constructs=constructs)
        return self._remotes[key]

    def _exception(self, names: list[str]) -> type[BaseException]:
        """Return the tests' own class for an exception class of the program, derived from the nearest built-in one."""
        return _harmless(self._exceptions.setdefault(names[0], class_of(names, self._exceptions)))

    def _rebuilt(self, content: Message) -> BaseException:
        origin = content.get("origin")
        if type(origin) is int and 0 <= origin < len(self._raised):
            return self._raised[origin]
        self._exceptions.setdefault(content["names"][0], class_of(content["names"], self._exceptions))
        return rebuild_error(content, self._exceptions)

    def _call_tests(self, callback: Message) -> Message:
        """Call a function of the tests for the program. A failed assertion in it fails the check in any case."""
        try:
            function = self._functions[callback["number"]]
            if not callable(function):
                return {"value": self.encode(next(function))}
            args = [self._decode(value) for value in callback["args"]]
            kwargs = {key: self._decode(value) for key, value in callback["kwargs"].items()}
            return {"value": self.encode(function(*args, **kwargs))}
        except StopIteration:
            return {"end": True}
        except BaseException as error:
            if isinstance(error, AssertionError):
                self._fault = self._fault or f"AssertionError: {error}"[:300]
            self._raised.append(error if not isinstance(error, ENDS_ITERATION) else RuntimeError(str(error)))
            return error_message(error, origin=len(self._raised) - 1)


def _harmless(value: Any) -> Any:
    """Return a class of exceptions that does not catch a failed assertion of the tests, as `except MyError` would."""
    if isinstance(value, type) and issubclass(value, BaseException) and issubclass(AssertionError, value):
        return type(value.__name__, (value,), {})
    return value
