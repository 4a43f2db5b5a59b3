"""How a recipe says what a step is, and where a function of somebody else stands."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, Field, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.import_path import ALLOWED, borrow_function

PATTERNS = {"lines": r"\n+", "paragraphs": r"\n[^\S\n]*\n\s*", "sentences": r"[.!?]+(?=\s|$)|\n+"}
"""Name → what ends a step and still belongs to it."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise PydanticCustomError("pattern", "a regular expression: {why}", {"why": str(error)}) from None
    return pattern


def _there(address: str) -> str:
    try:
        borrow_function(address, where="")
    except RecipeError as error:
        said = {"allowed": ALLOWED, "why": error.problem}
        raise PydanticCustomError("address", "a function by its address, {allowed} ({why})", said) from None
    return address


def _a_rule(steps: Any, otherwise: ValidatorFunctionWrapHandler) -> Any:
    """Of a text one thing is said, and not one by each branch of the union."""
    if not isinstance(steps, str) or steps in PATTERNS:
        return otherwise(steps)
    try:
        return _there(steps)
    except PydanticCustomError as error:
        names = ", ".join(f"'{name}'" for name in PATTERNS)
        said = {"names": f"{names}, {{pattern: …}}, {{every: …}}", "why": error.message()}
        raise PydanticCustomError("steps", "Input should be {names} or {why}", said) from None


Address = Annotated[str, AfterValidator(_there)]
"""A knob that holds ``module:function`` or ``file.py:function``; what is not there is refused with the recipe."""


class Pattern(pydantic.BaseModel):
    """A step ends with what a regular expression matches."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
    pattern: Annotated[str, AfterValidator(_compiles)]


class Every(pydantic.BaseModel):
    """A step is so many tokens."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
    every: Annotated[int, Field(ge=1)]


Steps = Annotated[Literal["lines", "paragraphs", "sentences"] | Pattern | Every | str, WrapValidator(_a_rule)]
"""A knob that says what a step is: a name, ``{pattern: ";"}``, ``{every: 32}``, or the address of a rule."""
