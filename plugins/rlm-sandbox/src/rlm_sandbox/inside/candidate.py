"""The role of the candidate: the model's program, whose functions are called by name. It knows no expected answer."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

from rlm_sandbox.inside.channel import Channel, serve
from rlm_sandbox.inside.wire import Json, Unsendable, decode, encode

MODULE = "solution"


class Candidate:
    """The program once it is loaded, and those of its objects that somebody outside holds on to."""

    def __init__(self, source: str) -> None:
        self._module = types.ModuleType(MODULE)
        sys.modules[MODULE] = self._module
        self._objects: list[Any] = []
        exec(compile(source, "<program>", "exec"), vars(self._module))

    def answer(self, message: dict[str, Any]) -> dict[str, Json]:
        """One call, or a look at one attribute: ``{of, name, args, kwargs}``, `of` being an object or null."""
        owner = None if message["of"] is None else self._objects[message["of"]]
        found = self._named(message["name"]) if owner is None else getattr(owner, message["name"])
        if message.get("args") is not None:
            args = [self._in(each) for each in message["args"]]
            found = found(*args, **{key: self._in(each) for key, each in message["kwargs"].items()})
        elif callable(found):
            return {"callable": True}
        return self._out(found)

    def _named(self, path: str) -> Any:
        """``add``; ``Solution.add``: the method of a new instance; a bare name also of the class ``Solution``."""
        first, _, rest = path.partition(".")
        there = vars(self._module)
        if first not in there and not rest and hasattr(there.get("Solution"), first):
            first, rest = "Solution", first
        if first not in there:
            raise NameError(f"name '{first}' is not defined")
        found = there[first]
        for name in filter(None, rest.split(".")):
            method = isinstance(found, type) and isinstance(inspect.getattr_static(found, name), types.FunctionType)
            found = getattr(found() if method else found, name)
        return found

    def _in(self, value: Json) -> Any:
        if type(value) is list:
            return [self._in(each) for each in value]
        if type(value) is dict and "$object" in value:
            return self._objects[value["$object"]]
        return decode(value)

    def _out(self, value: Any) -> dict[str, Json]:
        try:
            return {"value": encode(value)}
        except Unsendable:
            if type(value).__module__ != MODULE:
                raise
            self._objects.append(value)
            return {"object": len(self._objects) - 1}


def answer_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Loads the program, then answers until nobody asks."""
    serve(channel, lambda: Candidate(job["source"]).answer)
