"""Messages for pydantic's validation errors: one address, "expected A, got B", one hint.

Knobs of parts, sections of a recipe and fields of a trainer's config are all validated by pydantic in strict mode.
The callers write the messages of unknown and missing keys, which differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_plugins.errors import nearest
from rlm_plugins.messages import either, expected, text_number

Address = tuple[str | int, ...]

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "a mapping",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "list_type": "a list",
    "model_type": "a mapping",
    "none_required": "null",
    "set_type": "a list",
    "string_too_short": "a string of at least one character",
    "string_type": "a string",
    "too_long": "at most {max_length} entries",
    "too_short": "{min_length} or more entries",
    "tuple_type": "a list",
}
"""Type of pydantic's error → the phrase after "expected"."""


@dataclass(frozen=True)
class FieldError:
    """The most useful one of pydantic's errors.

    Args:
        kind: ``unknown`` (a key), ``missing`` (a key) or ``value``.
        address: Keys and positions from the top of the data, without the branches of unions.
        value: The value there; of a missing key, the mapping that lacks it.
        problem: "expected …, got …"; of a key, empty.
        hint: What to do about a value.
    """

    kind: str
    address: Address
    value: Any
    problem: str = ""
    hint: str = ""


def most_specific_error(errors: Sequence[Any], data: Any) -> FieldError:
    """Return the first error, or a deeper one: that of the branch of a union that matched furthest.

    Args:
        errors: `pydantic.ValidationError.errors()`, or some of them.
        data: The validated data.
    """
    first = errors[0]
    address, value = _address(data, first), first["input"]
    if first["type"] in _MISSING and isinstance(address[-1], int):  # an entry of a tuple
        return FieldError("value", address[:-1], value, expected(f"{address[-1] + 1} or more entries", value))
    if first["type"] in (*_UNKNOWN, *_MISSING):
        return FieldError("unknown" if first["type"] in _UNKNOWN else "missing", address, value)
    located = [(_address(data, error), error) for error in errors if error["type"] not in (*_UNKNOWN, *_MISSING)]
    deeper = [other for other, _ in located if other[: len(address)] == address and other != address]
    address = deeper[0] if deeper else address
    at_address = [error for other, error in located if other == address]
    value = at_address[0]["input"]
    phrases = list(dict.fromkeys(map(_expected, at_address)))
    return FieldError("value", address, value, expected(either(phrases), value), _hint(value, at_address))


def address_text(address: Address) -> str:
    """Return an address as a recipe path: ``.k.every[1]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in address)


def _expected(error: Mapping[str, Any]) -> str:
    error_type, context = error["type"], error.get("ctx", {})
    if error_type in ("literal_error", "enum"):
        return str(context["expected"])
    if error_type in ("value_error", "assertion_error"):
        return f"a valid value ({context['error']})"
    limits = {name: f"{limit:g}" if isinstance(limit, float) else limit for name, limit in context.items()}
    if error_type in _EXPECTED:
        return _EXPECTED[error_type].format(**limits)
    return str(error["msg"]).removeprefix("Input should be ")


def _address(data: Any, error: Mapping[str, Any]) -> Address:
    """Return pydantic's address without the branches of unions that it tried on the way."""
    steps: Sequence[str | int] = error["loc"]
    address: Address = ()
    for step in steps:
        in_list = isinstance(data, list | tuple) and isinstance(step, int) and step < len(data)
        if in_list or (isinstance(data, Mapping) and step in data):
            data, address = data[step], (*address, step)
    return (*address, steps[-1]) if error["type"] in _MISSING else address


def _hint(value: object, errors: Sequence[Mapping[str, Any]]) -> str:
    types = [error["type"] for error in errors]
    if value in ("yes", "no", "on", "off") and "bool_type" in types:
        return "write true or false"
    if isinstance(value, dict) and types == ["list_type"]:
        return "write a list: `- {name: …}`"
    listed = " ".join(str(error["ctx"]["expected"]) for error in errors if error["type"] in ("literal_error", "enum"))
    choices = [choice for choice in re.findall(r"'([^']*)'", listed) if choice != value]
    return text_number(value) or nearest(str(value), choices)
