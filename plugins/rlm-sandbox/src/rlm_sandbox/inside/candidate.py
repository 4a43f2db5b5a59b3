"""The role of the candidate: the model's program, whose functions are called by name. It has no expected answers."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

from rlm_sandbox.inside.channel import Channel, serve
from rlm_sandbox.inside.protocol import EncodingError, Json, decode, encode

MODULE = "solution"


class Candidate:
    """The loaded program, and those of its objects that the examiner refers to."""

    def __init__(self, source: str) -> None:
        self._module = types.ModuleType(MODULE)
        sys.modules[MODULE] = self._module
        self._objects: list[Any] = []
        exec(compile(source, "<program>", "exec"), vars(self._module))

    def answer(self, message: dict[str, Any]) -> dict[str, Json]:
        """Make one call, or read one attribute: ``{of, name, args, kwargs}``, `of` being an object's number or null."""
        owner = None if message["of"] is None else self._objects[message["of"]]
        target = self._lookup(message["name"]) if owner is None else getattr(owner, message["name"])
        if message.get("args") is not None:
            args = [self._decode_argument(value) for value in message["args"]]
            target = target(*args, **{key: self._decode_argument(value) for key, value in message["kwargs"].items()})
        elif callable(target):
            return {"callable": True}
        return self._encode_result(target)

    def _lookup(self, path: str) -> Any:
        """Look up ``add``, or ``Solution.add`` on a new instance; a bare name also in the class ``Solution``."""
        first, _, rest = path.partition(".")
        namespace = vars(self._module)
        if first not in namespace and not rest and hasattr(namespace.get("Solution"), first):
            first, rest = "Solution", first
        if first not in namespace:
            raise NameError(f"name '{first}' is not defined")
        target = namespace[first]
        for name in filter(None, rest.split(".")):
            is_method = isinstance(target, type) and isinstance(
                inspect.getattr_static(target, name), types.FunctionType
            )
            target = getattr(target() if is_method else target, name)
        return target

    def _decode_argument(self, value: Json) -> Any:
        if type(value) is list:
            return [self._decode_argument(item) for item in value]
        if type(value) is dict and "$object" in value:
            return self._objects[value["$object"]]
        return decode(value)

    def _encode_result(self, value: Any) -> dict[str, Json]:
        try:
            return {"value": encode(value)}
        except EncodingError:
            if type(value).__module__ != MODULE:
                raise
            self._objects.append(value)
            return {"object": len(self._objects) - 1}


def answer_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Load the program, then answer calls until the socket closes."""
    serve(channel, lambda: Candidate(job["source"]).answer)
