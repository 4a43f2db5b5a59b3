"""A sample's end of its only socket, and exceptions as messages: names, plain arguments, plain attributes."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rlm_sandbox.inside.wire import Json, Message, decode, encode, pack, unpack

MAX_TEXT = 300
"""Largest number of characters of an exception's text."""
MAX_DETAILS = 20_000
"""Largest number of characters of its encoded arguments and attributes."""
ENDS_ITERATION = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions that would end a loop of the other side instead of being reported."""


class ProgramError(Exception):
    """An exception of the program that no built-in class describes."""


def error_message(error: BaseException, **more: Json) -> Message:
    """Return an exception as a message ``{error: {names, text, args, attributes}}``."""
    try:
        text = str(error)[:MAX_TEXT]
    except BaseException:
        text = ""
    content: dict[str, Json] = {"names": class_names(type(error)) or ["BaseException"], "text": text, **more}
    try:
        public = {name: value for name, value in vars(error).items() if not name.startswith("_")}
        args, attributes = encode(list(error.args)), encode(public)
        if len(repr((args, attributes))) <= MAX_DETAILS:
            content |= {"args": args, "attributes": attributes}
    except BaseException:
        content["args"] = [text]
    return {"error": content}


def class_names(kind: type) -> list[str]:
    """Return the names of a class of exceptions and of its bases: ``ValueError``, ``json.decoder.JSONDecodeError``.

    A class of the program has a short name. If that is the name of a built-in class, it is ``solution.ValueError``.
    """
    return [_class_name(base)[:80] for base in type.mro(kind) if base not in (BaseException, object)][:20]


def _class_name(kind: Any) -> str:
    name, module = kind.__name__, str(kind.__module__)
    if vars(builtins).get(name) is kind:
        return str(name)
    if _of_library(f"{module}.{name}") is kind:
        return f"{module}.{name}"
    return f"solution.{name}" if hasattr(builtins, name) else str(name)


def _of_library(name: str) -> type[Exception] | None:
    """Return the class ``module.name`` of a loaded module of the standard library, or None.

    Not of unittest: a program that raises its `SkipTest` would skip the test.
    """
    module, _, attribute = name.rpartition(".")
    if module.partition(".")[0] not in sys.stdlib_module_names - {"unittest"} or module not in sys.modules:
        return None
    found = vars(sys.modules[module]).get(attribute)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def class_of(names: list[str], known: Mapping[str, type[BaseException]]) -> type[BaseException]:
    """Return the class named ``names[0]``: `known`, built in, of a library, or derived from the nearest of `names`."""
    short_name = names[0].rpartition(".")[2]
    for name in names:
        found = known.get(name) or vars(builtins).get(name) or _of_library(name)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found if name == names[0] else type(short_name, (found,), {})
    return type(short_name, (ProgramError,), {})


def rebuild_error(content: Mapping[str, Json], known: Mapping[str, type[BaseException]]) -> BaseException:
    """Return the exception that a message describes.

    A StopIteration becomes a RuntimeError, as in a generator (PEP 479).
    """
    kind, text = class_of(content["names"], known), str(content["text"])
    if issubclass(kind, ENDS_ITERATION):
        return RuntimeError(f"the program raised {kind.__name__}: {text}")
    try:
        args, attributes = decode(content.get("args", [text])), decode(content.get("attributes") or {"$dict": []})
        error = _constructed(kind, args, attributes)
        if str(error)[:MAX_TEXT] != text:  # the class of the program has a `__str__`
            error = _constructed(type(kind.__name__, (kind,), {"__str__": lambda error: text}), args, attributes)
    except Exception:
        return ProgramError(f"{kind.__name__}: {text}")
    return error


def _constructed(kind: type[BaseException], args: list[Any], attributes: Mapping[str, Any]) -> BaseException:
    try:
        error = kind(*args)
    except TypeError:  # its constructor has other parameters
        error = kind.__new__(kind, *args)
    for name, value in attributes.items():
        if name.isidentifier() and not name.startswith("_"):
            setattr(error, name, value)
    return error


Answer = Callable[[Message], Mapping[str, Json]]


class Channel:
    """Message exchange with the trainer; the process exits when the other end closes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, message: Mapping[str, Json]) -> None:
        data = pack(message)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def receive(self) -> Message:
        return unpack(self._read(int.from_bytes(self._read(4), "big")))

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = os.read(self._descriptor, count - len(data))
            if not chunk:
                os._exit(0)
            data += chunk
        return bytes(data)


def serve(channel: Channel, load: Callable[[], Answer]) -> None:
    """Load the responder, report it, then answer until the socket closes. Every exception is reported as an error."""
    try:
        answer = load()
        channel.send({"loaded": True})
    except BaseException as error:
        channel.send(error_message(error))
        return
    while True:
        message = channel.receive()
        try:
            reply = answer(message)
        except BaseException as error:
            reply = error_message(error)
        channel.send(reply)
