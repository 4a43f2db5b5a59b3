"""Signatures of parts: data before the star, knobs after it.

Of a class, `__call__` has the data, and the keyword-only arguments of `__init__` are the knobs.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import warnings
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import pydantic
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.warnings import ArbitraryTypeWarning

from rlm_plugins.algorithm import Algorithm
from rlm_plugins.errors import PluginError, nearest

_STRICT = pydantic.ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
_NO_SCHEMA = (PydanticUserError, PydanticSchemaGenerationError, ArbitraryTypeWarning, NameError, TypeError, ValueError)


def data_of(target: Any) -> list[Parameter]:
    """Return the parameters that are data, in order, with `*args` and `**kwargs`; none for plain data."""
    if not callable(target):
        return []
    if inspect.isclass(target):
        if not any("__call__" in vars(base) for base in target.__mro__):
            return []
        parameters = list(inspect.signature(target.__call__).parameters.values())[1:]
    else:
        parameters = list(inspect.signature(target).parameters.values())
    return [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]


def update_of(target: Any) -> list[Parameter]:
    """Return the parameters of the method `update`; empty without one."""
    method = getattr(target, "update", None) if inspect.isclass(target) else None
    return list(inspect.signature(method).parameters.values())[1:] if callable(method) else []


def knobs_of(target: Any) -> list[Parameter]:
    """Return the parameters that are knobs; none for plain data (an algorithm, a setting)."""
    if not callable(target):
        return []
    return [p for p in inspect.signature(target).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]


def code_of(target: Any) -> Callable[..., Any]:
    """Return the function that has the knobs: behind decorators, a partial, a class or an object."""
    if inspect.isclass(target):
        return inspect.unwrap(target.__init__)
    target = inspect.unwrap(target)
    if isinstance(target, functools.partial):
        return code_of(target.func)
    return target if inspect.isroutine(target) else type(target).__call__


def file_of(target: Any) -> str:
    """Return the source file; empty if unknown."""
    if isinstance(target, Algorithm):
        return target.file
    try:
        return inspect.getsourcefile(target if inspect.isclass(target) else code_of(target)) or ""
    except (TypeError, AttributeError):
        return ""


def line_of(target: Any) -> int:
    """Return the first line in its file; 0 if unknown."""
    if isinstance(target, Algorithm):
        return target.line
    try:
        return inspect.getsourcelines(target if inspect.isclass(target) else code_of(target))[1]
    except (OSError, TypeError):
        return 0


def schema_of(name: str, target: Any, *, where: str) -> type[pydantic.BaseModel]:
    """Return the knobs as a pydantic model: types from the annotations, unknown names forbidden.

    Args:
        name: The name of the model.
        target: The function or class.
        where: The part, for errors.

    Raises:
        PluginError: An annotation that cannot be evaluated or is no type; an invalid name.
    """
    knobs = knobs_of(target)
    fields: dict[str, Any] = {knob.name: (_annotation(knob, target, where), _default(knob)) for knob in knobs}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a knob may well be called `copy` or `json`
            warnings.simplefilter("error", ArbitraryTypeWarning)  # but `any` is no type
            model = pydantic.create_model(name, __config__=_STRICT, **fields)
            model.model_rebuild()
    except _NO_SCHEMA as error:
        raise PluginError(f"its knobs have no schema: {error}", where=where) from error
    if rejected := [knob.name for knob in knobs if knob.name not in model.model_fields]:
        raise PluginError(f"invalid name '{rejected[0]}' of a knob", where=where, hint="without the underscore")
    return model


def _default(knob: Parameter) -> Any:
    return ... if knob.default is Parameter.empty else knob.default


def declaration(parameter: Parameter) -> str:
    """Return how to declare a parameter as a knob: with the type of its default, or float.

    >>> declaration(Parameter("k", Parameter.KEYWORD_ONLY, default=3))
    'k: int = 3'
    """
    if parameter.default in (Parameter.empty, None):
        return f"{parameter.name}: float = …"
    return f"{parameter.name}: {type(parameter.default).__name__} = {parameter.default!r}"


def _annotation(knob: Parameter, target: Any, where: str) -> Any:
    """Return the annotation as a type; a string is evaluated in the module of the target."""
    if knob.annotation is Parameter.empty:
        raise PluginError(
            f"knob '{knob.name}' has no annotation",
            where=where,
            hint=f"`{declaration(knob)}`: recipes are validated against the annotation",
        )
    if not isinstance(knob.annotation, str):
        return knob.annotation
    scope = getattr(code_of(target), "__globals__", {})
    try:
        return eval(knob.annotation, scope)
    except Exception as error:
        raise PluginError(
            f"knob '{knob.name}' is annotated '{knob.annotation}', which cannot be evaluated ({error})",
            where=where,
            allowed="a builtin type, or one imported at the top of the file (not under TYPE_CHECKING)",
            hint=nearest(knob.annotation, [*scope, *dir(builtins)]),
        ) from error
