"""Exceptions as messages: names of the class and its bases, plain arguments, plain attributes."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from rlm_sandbox.inside.decoding import decode
from rlm_sandbox.inside.encoding import encode
from rlm_sandbox.inside.protocol import Json, Message

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
    names = [base.__name__[:80] for base in type.mro(type(error)) if base not in (BaseException, object)][:20]
    content: dict[str, Json] = {"names": names or ["BaseException"], "text": text, **more}
    try:
        args, attributes = encode(list(error.args)), encode(_public(vars(error)))
        if len(repr((args, attributes))) <= MAX_DETAILS:
            content |= {"args": args, "attributes": attributes}
    except BaseException:
        content["args"] = [text]
    return {"error": content}


def _public(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if not name.startswith("_")}


def class_of(names: list[str], known: Mapping[str, type[BaseException]]) -> type[BaseException]:
    """Return a class named ``names[0]``: a `known` or built-in one, or derived from the nearest of `names` that is."""
    for name in names:
        found = known.get(name) or vars(builtins).get(name)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found if name == names[0] else type(names[0], (found,), {})
    return type(names[0], (ProgramError,), {})


def rebuild_error(content: Mapping[str, Json], known: Mapping[str, type[BaseException]]) -> BaseException:
    """Return the exception that a message describes.

    A StopIteration becomes a RuntimeError, as in a generator (PEP 479).
    """
    kind, text = class_of(content["names"], known), str(content["text"])
    if issubclass(kind, ENDS_ITERATION):
        return RuntimeError(f"the program raised {kind.__name__}: {text}")
    try:
        error = kind(*decode(content.get("args", [text])))
        for name, value in decode(content.get("attributes") or {"$dict": []}).items():
            if name.isidentifier() and not name.startswith("_"):
                setattr(error, name, value)
    except Exception:
        return ProgramError(f"{kind.__name__}: {text}")
    return error
