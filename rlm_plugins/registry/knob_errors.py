"""What pydantic says of a wrong knob, as a sentence with a place, a finding and a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic

from rlm_plugins.errors import RecipeError, mistyped, nearest
from rlm_plugins.hookspecs import beside
from rlm_plugins.messages import found, text_number

_OF_KEYS = ("missing", "extra_forbidden")
"""What pydantic calls complaints about a key, and not about its value."""


def in_words(
    error: pydantic.ValidationError, part: str, knobs: Sequence[str], settings: Mapping[str, Any], where: str
) -> RecipeError:
    """The first complaint.

    Args:
        error: All of them.
        part: Name of the part.
        knobs: The knobs it has, and what else a recipe may write beside its name.
        settings: The knobs a recipe turned.
        where: Recipe path of the part.
    """
    first = error.errors()[0]
    knob = str(first["loc"][0])
    if first["type"] == "extra_forbidden" and len(first["loc"]) > 1:  # within a knob; its value may be a secret
        place, key = where + _address(settings, first["loc"]), first["loc"][-1]
        return RecipeError(f"'{knob}' of '{part}' has no key '{key}'", where=place)
    if first["type"] == "extra_forbidden":
        allowed = ", ".join(knobs) or "no knobs"
        hint = beside(knob) or nearest(knob, knobs)
        return RecipeError(f"'{part}' has no knob '{knob}'", where=f"{where}.{knob}", allowed=allowed, hint=hint)
    if first["type"] == "missing" and len(first["loc"]) == 1:
        hint = mistyped(knob, [name for name in settings if name not in knobs])
        return RecipeError(f"'{part}' needs the knob '{knob}'", where=f"{where}.{knob}", hint=hint)
    first = next((e for e in error.errors() if _within(settings, e)), first)
    knob, value = str(first["loc"][0]), first["input"]
    of_a_union = [
        e["msg"] for e in error.errors() if e["loc"][0] == knob and e["input"] == value and e["type"] not in _OF_KEYS
    ]
    wanted = " or ".join(dict.fromkeys(m.removeprefix("Input should be ") for m in of_a_union or [first["msg"]]))
    place = where + _address(settings, first["loc"])
    listed = " ".join(m for m in of_a_union if m.startswith("Input should be "))
    return RecipeError(f"found {found(value)}", where=place, allowed=wanted, hint=_hint(value, listed))


def _within(settings: Mapping[str, Any], complaint: Mapping[str, Any]) -> bool:
    """Whether it is about something inside a knob: the branch of a union that came further than the others."""
    inside = len(re.findall(r"[.[]", _address(settings, complaint["loc"]))) > 1
    return inside and complaint["type"] not in _OF_KEYS


def _address(data: Any, loc: tuple[str | int, ...]) -> str:
    """Pydantic's address, without the branches of a union that it tried on the way."""
    place = ""
    for step in loc:
        in_list = isinstance(data, list | tuple) and isinstance(step, int)
        if in_list or (isinstance(data, Mapping) and step in data):
            data, place = data[step], place + (f"[{step}]" if in_list else f".{step}")
    return place


def _hint(value: object, wanted: str) -> str:
    if value in ("yes", "no", "on", "off") and "boolean" in wanted:
        return "write true or false"
    quoted = [word for word in re.findall(r"'([^']*)'", wanted) if word != value]
    return text_number(value) or nearest(str(value), quoted)
