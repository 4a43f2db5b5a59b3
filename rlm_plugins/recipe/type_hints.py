"""Strict validation of a mapping against the fields of a config class, such as ``trl.GRPOConfig``, by pydantic."""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import pydantic
import pydantic_core
import typing_extensions
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

_CONFIG = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)


def validate(config_class: type, values: Mapping[str, Any]) -> None:
    """Check the names and types of `values`: whole numbers are numbers, nothing else is converted.

    Args:
        config_class: A dataclass.
        values: Field → value, as a recipe has it.

    Raises:
        pydantic.ValidationError: A field that is unknown, or a value of another type.
    """
    # As JSON, where strict mode takes a list for a tuple, a string for an enum, a mapping for a dataclass.
    _schema(config_class).validate_json(pydantic_core.to_json(dict(values), fallback=repr))


@functools.cache
def _schema(config_class: type) -> pydantic.TypeAdapter[Any]:
    hints = typing.get_type_hints(config_class)
    names = [f.name for f in dataclasses.fields(config_class) if f.init]
    fields = {name: _with_placeholders(without_loose_text(hints[name])) for name in names}
    make: Any = typing_extensions.TypedDict
    mapping = make(config_class.__name__, fields, total=False)
    mapping.__pydantic_config__ = _CONFIG
    return pydantic.TypeAdapter(mapping)


def without_loose_text(hint: Any) -> Any:
    """Return a hint without `str` beside an enum: ``SchedulerType | str`` means one of the scheduler types."""
    parts = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else ()
    if any(isinstance(part, type) and issubclass(part, enum.Enum) for part in parts):
        return typing.Union[tuple(part for part in parts if part is not str)]  # noqa: UP007
    return hint


def _with_placeholders(hint: Any) -> Any:
    """Return a hint whose literals take numbers: PEFT writes ``pissa_niter_[number of iters]``."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_with_placeholders, get_args(hint)))]  # noqa: UP007
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    templates = [choice for choice in choices if isinstance(choice, str) and "[" in choice]
    if not templates:
        return hint
    plain = tuple(choice for choice in choices if choice not in templates)
    filled = [Annotated[str, AfterValidator(functools.partial(_fill, template))] for template in templates]
    return typing.Union[(Literal[plain], *filled)]  # type: ignore[valid-type]


def _fill(template: str, value: str) -> str:
    pattern = re.sub(r"\\\[.*?\\\]", r"\\d+", re.escape(template))
    if re.fullmatch(pattern, value) is None:
        raise PydanticCustomError("literal_error", "{expected}", {"expected": repr(template)})
    return value
