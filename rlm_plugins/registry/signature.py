"""What a function says about itself: before the star its data, after the star its knobs.

A class says it in two places: its `__call__` takes the data, the keyword-only arguments of its `__init__` are knobs.
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
    """The parameters that are data, in order; `*args` and `**kwargs` are among them."""
    if inspect.isclass(target):
        parameters = list(inspect.signature(target.__call__).parameters.values())[1:]
    else:
        parameters = list(inspect.signature(target).parameters.values())
    return [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]


def update_of(target: Any) -> list[Parameter]:
    """The parameters of its method `update`: the data it learns from; empty where it has none."""
    method = getattr(target, "update", None) if inspect.isclass(target) else None
    return list(inspect.signature(method).parameters.values())[1:] if callable(method) else []


def knobs_of(target: Any) -> list[Parameter]:
    """The parameters that are knobs."""
    return [p for p in inspect.signature(target).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]


def code_of(target: Any) -> Callable[..., Any]:
    """The function in whose file the knobs stand: behind decorators, a partial, a class or an object."""
    if inspect.isclass(target):
        return inspect.unwrap(target.__init__)
    target = inspect.unwrap(target)
    if isinstance(target, functools.partial):
        return code_of(target.func)
    return target if inspect.isroutine(target) else type(target).__call__


def file_of(target: Any) -> str:
    """The source file it stands in; empty where Python cannot tell."""
    if isinstance(target, Algorithm):
        return target.file
    try:
        return inspect.getsourcefile(target if inspect.isclass(target) else code_of(target)) or ""
    except (TypeError, AttributeError):
        return ""


def line_of(target: Any) -> int:
    """The line of its file it begins on; 0 where Python cannot tell."""
    if isinstance(target, Algorithm):
        return target.line
    try:
        return inspect.getsourcelines(target if inspect.isclass(target) else code_of(target))[1]
    except (OSError, TypeError):
        return 0


def schema_of(name: str, target: Any, *, where: str) -> type[pydantic.BaseModel]:
    """The knobs as a pydantic model: types from the annotations, unknown names forbidden.

    Args:
        name: The name of the model.
        target: The function or class.
        where: The part it is, for the error.

    Raises:
        PluginError: An annotation that cannot be read, or that is no type; a name pydantic cannot take.
    """
    knobs = knobs_of(target)
    fields: dict[str, Any] = {knob.name: (_kind(knob, target, where), _default(knob)) for knob in knobs}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a knob may well be called `copy` or `json`
            warnings.simplefilter("error", ArbitraryTypeWarning)  # but `any` is no type
            model = pydantic.create_model(name, __config__=_STRICT, **fields)
            model.model_rebuild()
    except _NO_SCHEMA as error:
        raise PluginError(f"its knobs make no schema: {error}", where=where) from error
    if lost := [knob.name for knob in knobs if knob.name not in model.model_fields]:
        raise PluginError(f"a knob cannot be called '{lost[0]}'", where=where, hint="no underscore in front")
    return model


def _default(knob: Parameter) -> Any:
    return ... if knob.default is Parameter.empty else knob.default


def _kind(knob: Parameter, target: Any, where: str) -> Any:
    """The annotation as a type; text (``from __future__ import annotations``) is read where it was written."""
    if knob.annotation is Parameter.empty:
        raise PluginError(
            f"knob '{knob.name}' has no annotation",
            where=where,
            hint=f"write `{knob.name}: float = …`: the annotation is what recipes are checked against",
        )
    if not isinstance(knob.annotation, str):
        return knob.annotation
    scope = getattr(code_of(target), "__globals__", {})
    try:
        return eval(knob.annotation, scope)
    except Exception as error:
        raise PluginError(
            f"knob '{knob.name}' is annotated '{knob.annotation}', which cannot be read ({error})",
            where=where,
            allowed="a builtin type, or one imported at the top of the file (not under TYPE_CHECKING)",
            hint=nearest(knob.annotation, [*scope, *dir(builtins)]),
        ) from error
