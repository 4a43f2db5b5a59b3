"""What a recipe says of the knobs of a part, checked: values by their types, schedules at both ends."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pydantic
import pydantic_core

from rlm_plugins import schedule
from rlm_plugins.errors import RecipeError
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.registry.knob_errors import in_words
from rlm_plugins.schedule import Schedule

if TYPE_CHECKING:
    from rlm_plugins.registry.part import Part


def turned(part: Part, settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Every knob of `part` with its value or schedule, defaults included.

    Raises:
        RecipeError: An unknown knob, a value of the wrong type, or a schedule where there can be none.
    """
    moving = {name: _read(part, name, value, where) for name, value in settings.items() if _moves(part, name, value)}
    starts = _checked(part, {**settings, **{name: s.start for name, s in moving.items()}}, where, moving, "from")
    if moving:
        _checked(part, {**settings, **{name: s.end for name, s in moving.items()}}, where, moving, "to")
    return {**starts, **moving}


def _checked(
    part: Part, settings: Mapping[str, Any], where: str, moving: Mapping[str, Any], end: str
) -> dict[str, Any]:
    """The knobs at one end of their schedules."""
    try:
        # As JSON, because a recipe has lists and text where a knob may want a tuple, a set or a path.
        model = part.knobs.model_validate_json(pydantic_core.to_json(dict(settings), fallback=repr))
    except pydantic.ValidationError as error:
        words = [*part.knobs.model_fields, *HOOKS[part.hook].keys]
        wrong = in_words(error, part.name, words, settings, where)
        if error.errors()[0]["loc"][0] in moving:
            wrong = RecipeError(wrong.problem, where=f"{wrong.where}.{end}", allowed=wrong.allowed, hint=wrong.hint)
        raise wrong from None
    return {name: getattr(model, name) for name in part.knobs.model_fields}


def _moves(part: Part, name: str, value: Any) -> bool:
    """Whether a value is the schedule of a number."""
    return isinstance(value, Mapping | Schedule) and bool(_kinds(part, name))


def _kinds(part: Part, name: str) -> set[type]:
    field = part.knobs.model_fields.get(name)
    return schedule.numbers(field.annotation) if field is not None else set()


def _read(part: Part, name: str, value: Any, where: str) -> Schedule:
    if reason := immovable(part):
        raise RecipeError(f"'{part.name}' takes no schedules: {reason}", where=f"{where}.{name}", allowed="a number")
    return schedule.read(schedule.plain(value), f"{where}.{name}", whole=_kinds(part, name) == {int})


def movable(part: Part, name: str) -> bool:
    """Whether a knob may follow a schedule."""
    return bool(_kinds(part, name)) and not immovable(part)


def immovable(part: Part) -> str:
    """Why the knobs of a part stay where they are; empty where they can move."""
    if inspect.isclass(part.target):
        return "it has a memory, and is given its knobs once, when it is made"
    if part.hook == "rlm_samplers" and "count" not in (*part.needs, *part.welcomes):
        return "the order of an epoch depends on its number and the seed alone"
    if not HOOKS[part.hook].scheduled:
        return f"{HOOKS[part.hook].key} stands outside the optimiser steps that a schedule counts"
    return ""
