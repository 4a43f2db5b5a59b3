"""A setting under ``trainer:`` that a package adds to those of TRL (hook ``rlm_settings``), as one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pydantic
import pydantic_core

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.validation_errors import most_specific_error

if TYPE_CHECKING:
    from rlm_plugins.trainer.observer import StepObserver

_STRICT = pydantic.ConfigDict(strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class PolicyBytes:
    """Memory of the policy.

    Args:
        trained: Bytes of the trained weights.
        copy: Bytes of a further process that generates with a copy of the policy.
    """

    trained: int
    copy: int


@dataclass(frozen=True)
class Setting:
    """A setting of the trainer of an algorithm with an equation, beside the fields of ``trl.GRPOConfig``.

    Args:
        annotation: Its type, with its range: ``Annotated[int, Field(ge=0)]``.
        about: Its effect and unit.
        check: Called with the config, with it set; raises a `RecipeError` where it contradicts another setting.
        check_stage: Called with a stage, before any weight is loaded, and the address of ``trainer:``; raises a
            `RecipeError`.
        observer: Called with the config; returns the observer of the training steps that does what the setting says.
        memory_bytes: Called with the memory of the policy and the config; returns the bytes that it keeps in memory.
        provides: Data of the batch that it provides: ``rollout_logp``.
        metrics: Logged number → its meaning.
    """

    annotation: Any
    about: str
    check: Callable[[Any], None] | None = None
    check_stage: Callable[[Any, Any, str], None] | None = None
    observer: Callable[[Any], StepObserver | None] | None = None
    memory_bytes: Callable[[PolicyBytes, Any], int] | None = None
    provides: Sequence[str] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)

    def check_value(self, name: str, value: Any, where: str = "") -> None:
        """Check type and range of a value.

        Args:
            name: Name of the setting.
            value: As a recipe has it.
            where: Its address, for errors.

        Raises:
            RecipeError: It is of another type, or outside the range.
        """
        fields: Any = {name: (self.annotation, ...)}
        model = pydantic.create_model("Settings", __config__=_STRICT, **fields)
        try:
            model.model_validate_json(pydantic_core.to_json({name: value}))
        except pydantic.ValidationError as error:
            wrong = most_specific_error(error.errors(), {name: value})
            raise RecipeError(wrong.problem, where=where or f"trainer.{name}", hint=wrong.hint or self.about) from None
