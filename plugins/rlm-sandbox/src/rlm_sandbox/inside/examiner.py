"""The role of the examiner: the tests. The program is in another process; here its names are proxies.

A proxy returns a built-in value, or a proxy of an object of the program. Operations that decide a test are not
forwarded to such objects: equality, truth, order.
"""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

from rlm_sandbox.inside import pytest_like
from rlm_sandbox.inside.candidate import MODULE
from rlm_sandbox.inside.channel import Answer, Channel, serve
from rlm_sandbox.inside.protocol import Json, decode, encode

FORWARDED = ("len", "getitem", "setitem", "delitem", "contains", "iter", "next", "str", "repr", "add", "sub", "mul")


class ProgramError(Exception):
    """An exception of the program that is not built in."""


class Remote:
    """Proxy of a function, class or object of the program. It equals only itself."""

    def __init__(self, channel: Channel, of: int | None, name: str | None) -> None:
        object.__setattr__(self, "_remote", (channel, of, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        channel, of, name = self._remote
        name = "__call__" if name is None else name
        arguments = {
            "args": [_encode_argument(value) for value in args],
            "kwargs": {key: _encode_argument(value) for key, value in kwargs.items()},
        }
        return _request(channel, {"of": of, "name": name, **arguments})

    def __getattr__(self, attribute: str) -> Any:
        channel, of, name = self._remote
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if name is not None:
            return Remote(channel, of, f"{name}.{attribute}")
        result = _request(channel, {"of": of, "name": attribute, "args": None})
        return Remote(channel, of, attribute) if result is _CALLABLE else result


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


def _encode_argument(value: Any) -> Json:
    if type(value) is list:
        return [_encode_argument(item) for item in value]
    if type(value) is Remote:
        _, of, name = value._remote
        if of is None or name is not None:
            raise TypeError("a function of the program cannot be an argument")
        return {"$object": of}
    return encode(value)


def _request(channel: Channel, message: dict[str, Any]) -> Any:
    channel.send({"ask": message})
    reply = channel.receive()
    if "error" in reply:
        name, text = reply["error"]
        exception_type = getattr(builtins, name, None)
        is_builtin = (
            isinstance(exception_type, type)
            and issubclass(exception_type, Exception)
            and not issubclass(exception_type, UnicodeError)
        )
        raise exception_type(text) if is_builtin else ProgramError(f"{name}: {text}")  # type: ignore[misc]
    if "object" in reply:
        return Remote(channel, reply["object"], None)
    return _CALLABLE if "callable" in reply else decode(reply["value"])


def install_stand_ins() -> None:
    """Install the stand-in for pytest, which test files import."""
    sys.modules["pytest"] = pytest_like  # type: ignore[assignment]


def examine(channel: Channel, job: dict[str, Any]) -> None:
    """Run the setup, then each check that is sent; a check passes if it finishes."""
    namespace: dict[str, Any] = {"__name__": "tests"}
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    program = {name: Remote(channel, None, name) for name in job["names"]}
    vars(module).update(program)

    def load() -> Answer:
        exec(compile(job["source"], "<tests>", "exec"), namespace)
        namespace.update(program)  # the tests may include a stub of the program, which must not win
        return check

    def check(message: dict[str, Any]) -> dict[str, Json]:
        exec(compile(message["check"], "<check>", "exec"), namespace)
        return {"passed": True}

    serve(channel, load)
