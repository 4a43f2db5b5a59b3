"""Binding of a part's knobs to a recipe's values: types are validated, a schedule at both its ends."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pydantic
import pydantic_core

from rlm_plugins import schedule
from rlm_plugins.errors import RecipeError, mistyped
from rlm_plugins.glossary import suggest
from rlm_plugins.hooks import HOOKS, option_hint
from rlm_plugins.registry.validation_errors import address_text, most_specific_error
from rlm_plugins.schedule import Schedule

if TYPE_CHECKING:
    from rlm_plugins.registry.part import Part


def bound_knobs(part: Part, settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return every knob of `part` with its value or schedule, defaults included.

    Args:
        part: A part.
        settings: Knob → value or schedule, as the recipe gives them.
        where: Recipe path of the part, for errors.

    Raises:
        RecipeError: An unknown knob, a value of the wrong type, or a schedule for a knob that takes none.
    """
    scheduled = [name for name, value in settings.items() if _is_schedule(part, name, value)]
    schedules = {name: _read(part, name, settings[name], where) for name in scheduled}
    starts = {name: value.start for name, value in schedules.items()}
    knobs = _validated(part, {**settings, **starts}, where, schedules, "from")
    if schedules:
        ends = {name: value.end for name, value in schedules.items()}
        _validated(part, {**settings, **ends}, where, schedules, "to")
    return {**knobs, **schedules}


def _validated(
    part: Part, settings: Mapping[str, Any], where: str, schedules: Mapping[str, Any], end: str
) -> dict[str, Any]:
    """Return the knobs at one end (`from` or `to`) of their schedules."""
    try:
        # As JSON, because a recipe has lists and strings where a knob may want a tuple, a set or a path.
        model = part.knobs.model_validate_json(pydantic_core.to_json(dict(settings), fallback=repr))
    except pydantic.ValidationError as error:
        in_schedule = error.errors()[0]["loc"][0] in schedules
        raise _knob_error(error, part, settings, where, f".{end}" if in_schedule else "") from None
    return {name: getattr(model, name) for name in part.knobs.model_fields}


def _knob_error(
    error: pydantic.ValidationError, part: Part, settings: Mapping[str, Any], where: str, end: str
) -> RecipeError:
    """Return the error of a wrong knob, with its address."""
    field_error = most_specific_error(error.errors(), settings)
    location, knob = where + address_text(field_error.address), str(field_error.address[0])
    names = [*part.knobs.model_fields, *HOOKS[part.hook].options]
    if field_error.kind == "value":
        return RecipeError(field_error.problem, where=location + end, hint=field_error.hint)
    if len(field_error.address) > 1:  # a key within a knob; its value may be a secret
        key = field_error.address[-1]
        problem = f"the key '{key}' is missing" if field_error.kind == "missing" else f"unknown key '{key}'"
        return RecipeError(f"{problem} in '{knob}' of '{part.name}'", where=location)
    if field_error.kind == "missing":
        hint = mistyped(knob, [name for name in settings if name not in names])
        return RecipeError(f"'{part.name}' requires the knob '{knob}'", where=location, hint=hint)
    hint = option_hint(knob) or suggest(knob, names)
    return RecipeError(
        f"unknown knob '{knob}' of '{part.name}'", where=location, allowed=", ".join(names) or "no knobs", hint=hint
    )


def _is_schedule(part: Part, name: str, value: Any) -> bool:
    """Return True if a value is the schedule of a number."""
    return isinstance(value, Mapping | Schedule) and bool(_number_types(part, name))


def _number_types(part: Part, name: str) -> set[type]:
    field = part.knobs.model_fields.get(name)
    return schedule.numbers(field.annotation) if field is not None else set()


def _read(part: Part, name: str, value: Any, where: str) -> Schedule:
    if reason := no_schedules(part):
        problem = f"'{part.name}' takes no schedules: {reason}"
        raise RecipeError(problem, where=f"{where}.{name}", allowed="a number")
    return schedule.read(schedule.as_recipe_value(value), f"{where}.{name}", whole=_number_types(part, name) == {int})


def takes_schedule(part: Part, name: str) -> bool:
    """Return True if a knob may follow a schedule."""
    return bool(_number_types(part, name)) and not no_schedules(part)


def no_schedules(part: Part) -> str:
    """Return why the knobs of a part take no schedules; empty if they do."""
    if inspect.isclass(part.target):
        return "it is stateful, and gets its knobs once, when it is created"
    if part.hook == "rlm_samplers" and "count" not in part.data:
        return "the order of an epoch depends on its number and the seed alone"
    if not HOOKS[part.hook].scheduled:
        return f"{HOOKS[part.hook].key} is outside the optimizer steps that a schedule counts"
    return ""
