"""Types of knobs: numbers that change during training, and names of rewards and rollout sources.

A schedule is a pure function of the optimizer steps done, so a resumed run continues exactly.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, WithJsonSchema, WrapValidator

from rlm_plugins.errors import RecipeError, RlmError, expected, nearest
from rlm_plugins.lazy import torch

if TYPE_CHECKING:
    from rlm_plugins.registry.part import Bound


Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class NameOf:
    """Mark a knob as the name of a reward or a source (`kind`), to be validated before anything is loaded."""

    kind: str


RewardName = Annotated[str, NameOf("reward")]
"""The name of a reward, or its label: ``reward: RewardName | None = None``, ``of: Sequence[RewardName]``."""
SourceName = Annotated[str, NameOf("source")]
"""The name of a rollout source, or ``policy``."""


def named(rewards: Mapping[str, torch.Tensor], name: str, *, where: str) -> torch.Tensor:
    """Return the reward `name` of `Batch.named_rewards`, (B,); NaN: it did not apply. `where` is the knob."""
    return _lookup(rewards, name, "reward", where)


def completions_of(sources: Mapping[str, torch.Tensor], name: str, *, where: str) -> torch.Tensor:
    """Return True for each completion that the source called `name` generated, (B,), by `Batch.sources`."""
    return _lookup(sources, name, "source", where)


def _lookup(values: Mapping[str, torch.Tensor], name: str, kind: str, where: str) -> torch.Tensor:
    if name not in values:
        problem = f"unknown {kind} '{name}'"
        raise RecipeError(problem, where=where, allowed=", ".join(values), hint=nearest(name, values))
    return values[name]


KEYS = ("from", "to", "over", "after", "shape")
SHAPES = ("linear", "cosine")


@dataclass(frozen=True)
class Schedule:
    """A number as a function of the optimizer steps done.

    Args:
        start: Its value up to step `after`.
        end: Its value from step `after` + `over` on.
        over: Steps in between.
        after: Steps before it starts to change.
        shape: ``linear``, or ``cosine`` (half a period: slow, fast, slow).
        whole: True if values are rounded to integers.
    """

    start: float
    end: float
    over: int
    after: int = 0
    shape: str = "linear"
    whole: bool = False

    def at(self, step: int) -> float:
        """Return its value after `step` optimizer steps.

        >>> [Schedule(1.0, 0.5, over=4, after=1).at(step) for step in (0, 1, 3, 5, 99)]
        [1.0, 1.0, 0.75, 0.5, 0.5]
        """
        progress = min(max((step - self.after) / self.over, 0.0), 1.0)
        if self.shape == "cosine":
            progress = (1 - math.cos(math.pi * progress)) / 2
        value = self.start * (1 - progress) + self.end * progress
        return round(value) if self.whole else value

    def as_recipe_value(self) -> dict[str, Any]:
        """Return it as plain data, as a recipe has it."""
        return {"from": self.start, "to": self.end, "over": self.over, "after": self.after, "shape": self.shape}

    def __str__(self) -> str:
        """Return it as text.

        >>> str(Schedule(1.0, 0.6, over=200, after=50))
        '1→0.6 in steps 50–250'
        """
        return f"{self.start:g}→{self.end:g} in steps {self.after}–{self.after + self.over}"


ScheduledNumber = Annotated[
    float | Schedule,
    WrapValidator(lambda value, validate: value if isinstance(value, Mapping) else validate(value)),
    WithJsonSchema({"type": "number"}),
]
"""A number of a recipe, or a mapping that :func:`read` takes."""


def value_at(value: Any, step: int | None) -> Any:
    """Return the value of a knob after `step` optimizer steps; a value that is no schedule is returned unchanged."""
    if not isinstance(value, Schedule):
        return value
    if step is None:
        raise RlmError(f"the schedule {value} requires a step", hint="give the batch its `step`")
    return value.at(step)


def as_recipe_value(value: Any) -> Any:
    """Return a knob as plain data: a schedule as its mapping, other values unchanged."""
    return value.as_recipe_value() if isinstance(value, Schedule) else value


def read(value: Mapping[str, Any], where: str, *, whole: bool = False) -> Schedule:
    """Parse the schedule of a recipe; the caller validates both ends against the knob.

    It has ``from``, ``to``, ``over``, and optionally ``after`` and ``shape``; values of a `whole` one are rounded.
    """
    for key in value:
        if key not in KEYS:
            hint = nearest(str(key), KEYS)
            raise RecipeError(f"unknown key '{key}' of a schedule", where=where, allowed=", ".join(KEYS), hint=hint)
    for key in KEYS[:3]:
        if key not in value:
            hint = "a schedule is `{from: 1.0, to: 0.6, over: 200}`, `over` in optimizer steps"
            raise RecipeError(f"the key '{key}' is missing", where=f"{where}.{key}", hint=hint)
    for key in ("from", "to"):
        _require(_is_number(value[key]), value[key], f"{where}.{key}", "a number")
    over, after, shape = value["over"], value.get("after", 0), value.get("shape", "linear")
    _require(_is_number(over, int) and over >= 1, over, f"{where}.over", "a whole number of optimizer steps, 1 or more")
    _require(_is_number(after, int) and after >= 0, after, f"{where}.after", "a whole number of optimizer steps")
    _require(shape in SHAPES, shape, f"{where}.shape", " or ".join(SHAPES))
    return Schedule(value["from"], value["to"], over, after, shape, whole)


def _is_number(value: Any, types: Any = (int, float)) -> bool:
    return isinstance(value, types) and not isinstance(value, bool) and math.isfinite(value)


def _require(is_valid: bool, value: Any, where: str, allowed: str) -> None:
    if not is_valid:
        raise RecipeError(expected(allowed, value), where=where)


def numbers(annotation: Any) -> set[type]:
    """Return which of int and float an annotation takes.

    >>> numbers(float | None), numbers(str), numbers(typing.Annotated[int, "1 or more"])
    ({<class 'float'>}, set(), {<class 'int'>})
    """
    if typing.get_origin(annotation) is typing.Annotated:
        return numbers(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return set().union(*map(numbers, typing.get_args(annotation)))
    return {annotation} & {int, float}


def schedules_by_name(parts: Iterable[tuple[str, Bound]]) -> dict[str, Schedule]:
    """Return every schedule of the parts, by the name under which it is logged; a second one of a name is numbered."""
    schedules: dict[str, Schedule] = {}
    for key, bound in parts:
        for knob, value in {**bound.knobs, **bound.options}.items():
            name = f"{key}.{bound.part.name}.{knob}"
            if isinstance(value, Schedule):
                count = sum(1 for existing in schedules if existing.partition("#")[0] == name)
                schedules[f"{name}#{count + 1}" if count else name] = value
    return schedules
