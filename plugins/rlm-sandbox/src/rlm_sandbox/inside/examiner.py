"""The role of the examiner: the tests. The program is in another process; here its names are stand-ins that ask it.

What comes back is a built-in value, or a stand-in for an object of the program. Of that, nothing that would decide a
test is asked: whether it is equal to something, true, or less.
"""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

from rlm_sandbox.inside import pytest_like
from rlm_sandbox.inside.candidate import MODULE
from rlm_sandbox.inside.channel import Answer, Channel, serve
from rlm_sandbox.inside.wire import Json, decode, encode

FORWARDED = ("len", "getitem", "setitem", "delitem", "contains", "iter", "next", "str", "repr", "add", "sub", "mul")


class ProgramError(Exception):
    """The program raised something that is no built-in exception."""


class Remote:
    """Something of the program: a function, a class or an object. Equal to itself alone."""

    def __init__(self, channel: Channel, of: int | None, name: str | None) -> None:
        object.__setattr__(self, "_remote", (channel, of, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        channel, of, name = self._remote
        name = "__call__" if name is None else name
        sent = {"args": [_out(each) for each in args], "kwargs": {key: _out(each) for key, each in kwargs.items()}}
        return _asked(channel, {"of": of, "name": name, **sent})

    def __getattr__(self, attribute: str) -> Any:
        channel, of, name = self._remote
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if name is not None:
            return Remote(channel, of, f"{name}.{attribute}")
        found = _asked(channel, {"of": of, "name": attribute, "args": None})
        return Remote(channel, of, attribute) if found is _CALLABLE else found


def _forward(name: str) -> Any:
    def method(self: Remote, *args: Any) -> Any:
        channel, of, _ = self._remote
        if name == "iter":
            return iter(Remote(channel, of, "__iter__")())
        return Remote(channel, of, f"__{name}__")(*args)

    return method


for _name in FORWARDED:
    setattr(Remote, f"__{_name}__", _forward(_name))

_CALLABLE = object()


def _out(value: Any) -> Json:
    if type(value) is list:
        return [_out(each) for each in value]
    if type(value) is Remote:
        _, of, name = value._remote
        if of is None or name is not None:
            raise TypeError("a function of the program cannot be handed back to it")
        return {"$object": of}
    return encode(value)


def _asked(channel: Channel, message: dict[str, Any]) -> Any:
    channel.send({"ask": message})
    reply = channel.receive()
    if "error" in reply:
        name, text = reply["error"]
        kind = getattr(builtins, name, None)
        fits = isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError)
        raise kind(text) if fits else ProgramError(f"{name}: {text}")  # type: ignore[misc]
    if "object" in reply:
        return Remote(channel, reply["object"], None)
    return _CALLABLE if "callable" in reply else decode(reply["value"])


def stand_ins() -> None:
    """Test files import pytest: a few of its words are there."""
    sys.modules["pytest"] = pytest_like  # type: ignore[assignment]


def examine(channel: Channel, job: dict[str, Any]) -> None:
    """Sets the stage, then makes each check that is sent: it has passed when it came to its end."""
    space: dict[str, Any] = {"__name__": "tests"}
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    program = {name: Remote(channel, None, name) for name in job["names"]}
    vars(module).update(program)

    def load() -> Answer:
        exec(compile(job["source"], "<tests>", "exec"), space)
        space.update(program)  # the tests may have come with a skeleton of it
        return check

    def check(message: dict[str, Any]) -> dict[str, Json]:
        exec(compile(message["check"], "<check>", "exec"), space)
        return {"passed": True}

    serve(channel, load)
