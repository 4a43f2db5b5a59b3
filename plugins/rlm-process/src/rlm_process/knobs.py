"""Knobs that define a step, or hold the address of a user's function."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, Field, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.loading import ALLOWED, import_function

PATTERNS = {"lines": r"\n+", "paragraphs": r"\n[^\S\n]*\n\s*", "sentences": r"[.!?]+(?=\s|$)|\n+"}
"""Name → pattern of a step's end, which belongs to the step."""


def _validate_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise PydanticCustomError("pattern", "a regular expression: {why}", {"why": str(error)}) from None
    return pattern


def _validate_address(address: str) -> str:
    try:
        import_function(address, where="")
    except RecipeError as error:
        details = {"allowed": ALLOWED, "why": error.problem}
        raise PydanticCustomError("address", "a function by its address, {allowed} ({why})", details) from None
    return address


def _validate_steps(steps: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Report one error for a string, instead of one per branch of the union."""
    if not isinstance(steps, str) or steps in PATTERNS:
        return handler(steps)
    try:
        return _validate_address(steps)
    except PydanticCustomError as error:
        names = ", ".join(f"'{name}'" for name in PATTERNS)
        details = {"names": f"{names}, {{pattern: …}}, {{every: …}}", "why": error.message()}
        raise PydanticCustomError("steps", "Input should be {names} or {why}", details) from None


Address = Annotated[str, AfterValidator(_validate_address)]
"""A knob that holds ``module:function`` or ``file.py:function``; a missing function is an error of the recipe."""


class Pattern(pydantic.BaseModel):
    """Steps that end with a match of a regular expression."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
    pattern: Annotated[str, AfterValidator(_validate_pattern)]


class Every(pydantic.BaseModel):
    """Steps of a fixed number of tokens."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
    every: Annotated[int, Field(ge=1)]


Steps = Annotated[Literal["lines", "paragraphs", "sentences"] | Pattern | Every | str, WrapValidator(_validate_steps)]
"""A knob that defines a step: a name, ``{pattern: ";"}``, ``{every: 32}``, or the address of a rule."""
