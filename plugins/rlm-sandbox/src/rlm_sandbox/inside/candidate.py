"""The role of the candidate: the model's program, whose functions are called by name. It has no expected answers."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from rlm_sandbox.inside.channel import Channel, class_names, error_message, rebuild_error, serve
from rlm_sandbox.inside.exchange import OPERATORS
from rlm_sandbox.inside.heap import Heap
from rlm_sandbox.inside.wire import ByValue, EncodingError, Json, Message, decode, encode

MODULE = "solution"


class Candidate:
    """The loaded program, and those of its objects that the examiner refers to by number."""

    def __init__(self, channel: Channel, source: str) -> None:
        self._channel, self._lock = channel, threading.RLock()
        self._module = types.ModuleType(MODULE)
        sys.modules[MODULE] = self._module
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._heap = Heap(
            1,
            self._encode_object,
            {
                "$object": self._objects.__getitem__,
                "$import": lambda content: getattr(importlib.import_module(content[0]), content[1]),
                "$function": lambda content: self._function(*content),
                "$stream": self._stream,
            },
        )
        exec(compile(source, "<program>", "exec", dont_inherit=True), vars(self._module))

    def reply(self, message: Message) -> Message:
        """Return the answer to a request, or the exception; its `origin` is the tests' own exception, if it is one."""
        if "plain" in message:  # a call without tests: only declared values, which are not shared
            return reply_to(self._call_plainly, message)
        self._heap.receive(message)
        try:
            return self._heap.attach(reply_to(self._answer, message))
        except EncodingError as error:
            return self._heap.attach(error_message(TypeError(str(error))))

    def _call_plainly(self, message: Message) -> Message:
        args = [decode(value) for value in message["args"]]
        kwargs = {key: decode(value) for key, value in message["kwargs"].items()}
        return {"value": encode(self._lookup(message["plain"])(*args, **kwargs), sender=_ARRAYS)}

    def _answer(self, message: Message) -> Message:
        """Execute one request: ``call``, ``get``, ``set`` or ``op``, on the object with number `of`, or a name."""
        if "op" in message:
            return self._operate(message)
        name: str = message.get("call") or message.get("get") or message["set"]
        owner = None if message["of"] is None else self._objects[message["of"]]
        if "set" in message:
            setattr(owner, name, self._decode(message["value"]))
            return {"value": None}
        target = self._named(name) if owner is None else owner if name == "__call__" else getattr(owner, name)
        if "get" in message:
            return {"value": self._encode(target)}
        args = [self._decode(value) for value in message["args"]]
        kwargs = {key: self._decode(value) for key, value in message["kwargs"].items()}
        return {"value": self._encode(target(*args, **kwargs))}

    def _operate(self, message: Message) -> Message:
        args = [self._decode(value) for value in message["args"]]
        try:
            return {"value": self._encode(OPERATORS[message["op"]](*args))}
        except StopIteration:
            if message["op"] != "next":
                raise
            return {"end": True}

    def _named(self, path: str) -> Any:
        """Return a name of the program; for a method of ``Solution`` a function that calls it on a new instance."""
        if path in vars(self._module):
            return vars(self._module)[path]
        self._lookup(path)
        return lambda *args, **kwargs: self._lookup(path)(*args, **kwargs)

    def _lookup(self, path: str) -> Any:
        """Look up ``add``, or ``Solution.add`` on a new instance; a bare name also in the class ``Solution``.

        Anything but a static method, class method or class is looked up on an instance: ``@cache def add(self)`` too.
        """
        first, _, rest = path.partition(".")
        namespace = vars(self._module)
        if first not in namespace and not rest and hasattr(namespace.get("Solution"), first):
            first, rest = "Solution", first
        if first not in namespace:
            raise NameError(f"name '{first}' is not defined")
        target = namespace[first]
        for name in filter(None, rest.split(".")):
            of_instance = isinstance(target, type) and not isinstance(
                inspect.getattr_static(target, name), staticmethod | classmethod | type
            )
            target = getattr(target() if of_instance else target, name)
        return target

    def _encode(self, value: Any) -> Json:
        return self._heap.encode(value)

    def _encode_object(self, value: Any, depth: int) -> Json:
        if _is_array(value):
            return encode(value.tolist(), depth, self._heap)
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        if isinstance(value, type) and BaseException in type.mro(value):
            return {"$object": [number, "exception", class_names(value)]}
        return {"$object": [number, _kind(value), []]}

    def _decode(self, value: Json) -> Any:
        return self._heap.decode(value)

    def _function(self, number: int, name: str, doc: str) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            return self._call_back(number, list(args), kwargs)

        function.__name__, function.__doc__ = name, doc
        return function

    def _stream(self, number: int) -> Iterator[Any]:
        while True:
            try:
                item = self._call_back(number, [], {})
            except _End:
                return
            yield item

    def _call_back(self, number: int, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of the tests; they may call the program before they reply."""
        with self._lock:
            given = {"args": [*map(self._encode, args)], "kwargs": {key: self._encode(kwargs[key]) for key in kwargs}}
            self._channel.send(self._heap.attach({"callback": {"number": number, **given}}))
            while True:
                message = self._channel.receive()
                if "reply" not in message:
                    self._channel.send(self.reply(message))
                    continue
                self._heap.receive(message)
                reply = message["reply"]
                if "end" in reply:
                    raise _End
                if "error" in reply:
                    error = rebuild_error(reply["error"], {})
                    error._raised_by_tests = reply["error"].get("origin")  # type: ignore[attr-defined]
                    raise error
                return self._decode(reply["value"])


class _End(Exception):
    """The end of an iterator of the tests."""


def _kind(value: Any) -> str:
    """Return the kind of an object: a coroutine, an iterator (a generator, `map`, `zip`, `itertools`), or an object."""
    if isinstance(value, types.CoroutineType):
        return "coroutine"
    of_library = isinstance(value, types.GeneratorType) or type(value).__module__ in ("builtins", "itertools")
    return "iterator" if of_library and hasattr(type(value), "__next__") else "object"


def _is_array(value: object) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "tolist")


class _Arrays(ByValue):
    """Sends arrays of NumPy as lists."""

    def undeclared(self, value: Any, depth: int) -> Json:
        return encode(value.tolist(), depth) if _is_array(value) else super().undeclared(value, depth)


_ARRAYS = _Arrays()


def reply_to(answer: Callable[[Message], Message], message: Message) -> Message:
    """Return the answer, or the exception as a message; its `origin` is the tests' own exception, if it is one."""
    try:
        return answer(message)
    except EncodingError as error:
        return error_message(TypeError(str(error)))
    except BaseException as error:
        origin = getattr(error, "_raised_by_tests", None)
        return error_message(error, **({"origin": origin} if type(origin) is int else {}))


def answer_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Load the program, then answer calls until the socket closes."""

    def load() -> Callable[[Message], Message]:
        candidate = Candidate(channel, job["source"])
        return candidate.reply

    serve(channel, load)
