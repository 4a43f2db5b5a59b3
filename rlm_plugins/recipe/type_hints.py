"""Type annotations of a config class, held against the values of a recipe and said in words."""

from __future__ import annotations

import enum
import math
import re
import types
import typing
from typing import Any, Literal, get_args, get_origin

from rlm_plugins.messages import either

_NAMES: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a mapping",
    list: "a list",
    type(None): "null",
    Any: "anything",
}


def allowed(hint: Any) -> str:
    """A type annotation, for the sentence "allowed: …".

    >>> allowed(float | None), allowed(list[str]), allowed(Literal["k1", "k2"])
    ('a number or null', 'a list of text', "'k1' or 'k2'")
    """
    if hint in _NAMES:
        return _NAMES[hint]
    if get_origin(hint) in (typing.Union, types.UnionType):
        kinds = {allowed(part) for part in get_args(hint)}  # typing caches unions: their order is that of another
        return either(sorted(kinds, key=lambda kind: (kind == "null", len(kind), kind)))
    if get_origin(hint) is Literal:
        return either([repr(choice) for choice in get_args(hint)])
    if get_origin(hint) is tuple:
        return f"a list of {len(get_args(hint))}"
    if get_origin(hint) is list:
        return f"a list of {allowed(get_args(hint)[0])}"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return either([str(member.value) for member in hint])
    return _NAMES.get(get_origin(hint), "a mapping")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value of a recipe is right for an annotation: whole numbers are numbers, nothing else is converted.

    >>> fits(1, float), fits("1e-6", float), fits(True, int), fits(["a"], list[str] | None)
    (True, False, False, True)
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in inner)
    if origin is Literal:
        return any(_same(value, choice) for choice in inner)
    if origin is list:
        return isinstance(value, list) and all(fits(x, inner[0]) for x in value)
    if origin is tuple:
        return isinstance(value, list) and len(value) == len(inner) and all(map(fits, value, inner))
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    return _fits_plain(value, hint)


def _fits_plain(value: Any, hint: Any) -> bool:
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint in (int, str, bool, list, dict, type(None)):
        return type(value) is hint
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [member.value for member in hint]
    return hint is Any or isinstance(value, dict)  # a config inside the config: its constructor knows


def _same(value: Any, choice: Any) -> bool:
    """A literal; PEFT writes a number to fill in as ``pissa_niter_[number of iters]``."""
    if isinstance(value, str) and isinstance(choice, str):
        return re.fullmatch(re.sub(r"\\\[.*?\\\]", r"\\d+", re.escape(choice)), value) is not None
    return type(value) is type(choice) and value == choice


def without_loose_text(hint: Any) -> Any:
    """``SchedulerType | str`` means one of the scheduler types."""
    parts = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else ()
    if any(isinstance(part, type) and issubclass(part, enum.Enum) for part in parts):
        return typing.Union[tuple(part for part in parts if part is not str)]  # noqa: UP007
    return hint


def choices(hint: Any) -> list[str]:
    """The words an annotation allows, for a guess at what was meant.

    >>> choices(Literal["k1", "k2"] | None)
    ['k1', 'k2']
    """
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [str(member.value) for member in hint]
    if get_origin(hint) is Literal:
        return [str(choice) for choice in get_args(hint)]
    return [choice for part in get_args(hint) for choice in choices(part)]
