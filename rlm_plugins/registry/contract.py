"""Contract of a part with its hook, and the errors for breaking it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import pydantic

from rlm_plugins.algorithm import Algorithm
from rlm_plugins.batch import PER_COMPLETION, SCORING, names
from rlm_plugins.errors import PluginError, nearest
from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry.member_names import check_members
from rlm_plugins.registry.protocols import Stateful, Updates
from rlm_plugins.registry.section import Section
from rlm_plugins.registry.setting import Setting
from rlm_plugins.registry.signature import data_of, declaration, knobs_of, update_of
from rlm_plugins.registry.validation_errors import most_specific_error

if TYPE_CHECKING:
    from rlm_plugins.registry.part import Part


_OBJECTS: dict[str, tuple[Any, str]] = {
    "rlm_algorithms": (Algorithm, "rlm_plugins.algorithm.Algorithm"),
    "rlm_settings": (Setting, "rlm_plugins.registry.setting.Setting"),
    "rlm_commands": (Callable, "a function"),
}
"""Hooks whose entries are objects without data and knobs."""
_CLASSES = {"rlm_trainers": "build", "rlm_observers": "", "rlm_sections": ""}
"""Hooks whose parts are classes that are not called with data → the method that they must have."""


def check(part: Part) -> None:
    """Check a part against the contract of its hook.

    Raises:
        PluginError: It names plugin, hook, part and file.
    """
    if part.hook in _OBJECTS:
        kind, allowed = _OBJECTS[part.hook]
        if not isinstance(part.target, kind):
            raise PluginError(f"is of type {type(part.target).__name__}", where=part.where, allowed=allowed)
        return
    _check_call(part)
    if part.hook in _CLASSES and not inspect.isclass(part.target):
        raise PluginError(f"is of type {type(part.target).__name__}", where=part.where, allowed="a class")
    if part.hook == "rlm_sections" and not issubclass(part.target, Section):
        allowed = "a class derived from rlm_plugins.registry.section.Section"
        raise PluginError(f"is the class {part.target.__name__}", where=part.where, allowed=allowed)
    if inspect.isclass(part.target):
        _check_class(part)
    for datum in data_of(part.target):
        _check_datum(part, datum, HOOKS[part.hook].data)
    for datum in update_of(part.target):
        _check_datum(part, datum, SCORING, of="its `update` ")
    _check_per_completion(part)
    _check_sampler(part)
    _check_stateful(part)
    check_members(part)
    _check_knobs(part)


def _check_call(part: Part) -> None:
    """Check that it can be called, and that its signature can be read."""
    if not callable(part.target):
        raise PluginError(f"is of type {type(part.target).__name__}", where=part.where, allowed="a function or a class")
    try:
        inspect.signature(part.target)
    except (TypeError, ValueError) as error:
        raise PluginError(f"has no readable signature: {error}", where=part.where, hint="wrap it in a def") from error
    if inspect.iscoroutinefunction(part.target) and part.hook != "rlm_rewards":
        raise PluginError("is asynchronous, which only rewards may be", where=part.where, hint="def, not async def")


def _check_class(part: Part) -> None:
    """Check that `__init__` has knobs only and `__call__` data only."""
    method = _CLASSES.get(part.hook, "__call__")
    if method and not any(method in vars(base) for base in part.target.__mro__):
        hint = "def __call__(self, …): with its data" if method == "__call__" else f"def {method}(self, …):"
        raise PluginError(f"the class has no {method}", where=part.where, hint=hint)
    if len(unpaired := {"state_dict", "load_state_dict"} & set(dir(part.target))) == 1:
        hint = "define both, or neither if the part is not stateful"
        raise PluginError(f"the class has {unpaired.pop()} without its counterpart", where=part.where, hint=hint)
    for p in inspect.signature(part.target).parameters.values():
        if p.kind is not Parameter.KEYWORD_ONLY:
            hint = "knobs: `def __init__(self, *, knob: float = …)`; data: `__call__`"
            raise PluginError(f"__init__ takes '{p}' before the star", where=part.where, hint=hint)
    if method == "__call__" and (keyword_only := knobs_of(part.target.__call__)):
        hint = "the knobs of a class are those of its __init__"
        raise PluginError(f"__call__ takes '{keyword_only[0]}' after the star", where=part.where, hint=hint)


def _check_datum(part: Part, p: Parameter, allowed: str | tuple[str, ...] | None, of: str = "") -> None:
    """Check that a datum is one of its phase (or hook), and has no default but None."""
    if p.kind is Parameter.VAR_KEYWORD and part.hook == "rlm_rewards" and not of:
        return  # a TRL reward function: it gets what TRL passes
    if p.kind is not Parameter.POSITIONAL_OR_KEYWORD:
        hint = "name every piece of data before the star and every knob after it"
        raise PluginError(f"{of}takes '{p}'", where=part.where, allowed="data by name", hint=hint)
    valid = names(allowed) if isinstance(allowed, str) else allowed
    knob_like = p.default is not p.empty and p.default is not None
    knob_hint = "" if of else f"a knob stands behind a star: `*, {declaration(p)}`"
    if valid is not None and p.name not in valid:
        raise PluginError(
            f"{of}requires '{p.name}', which {'it' if of else HOOKS[part.hook].key} never gets",
            where=part.where,
            allowed=", ".join(valid) or "no data, only knobs after the star",
            hint=nearest(p.name, valid) or knob_hint,
        )
    if knob_like and (of or not part.takes_kwargs):
        problem, allowed = f"{of}gives '{p.name}' a default, as if it were data", "None: optional data"
        raise PluginError(problem, where=part.where, allowed=allowed, hint=knob_hint)


def _check_per_completion(part: Part) -> None:
    """Check that a reward names `completion` or `completions`, not both."""
    if part.is_per_completion and (plural := [f"{x}s" for x in PER_COMPLETION if f"{x}s" in part.data]):
        hint = "`completion` for one completion and one number, `completions` for lists"
        raise PluginError(
            f"requires 'completion' and '{plural[0]}'", where=part.where, allowed="one of them", hint=hint
        )


def _check_stateful(part: Part) -> None:
    """Check that a part with `update` has `state_dict` and `load_state_dict`."""
    has_update = inspect.isclass(part.target) and isinstance(part.target, Updates)
    if has_update and not isinstance(part.target, Stateful):
        hint = "define state_dict and load_state_dict: its state belongs into every checkpoint"
        raise PluginError(
            "the class has `update`, but its state would be lost in a resumed run", where=part.where, hint=hint
        )


def _check_sampler(part: Part) -> None:
    """Check that a sampler names either an epoch or a count; only with a count it may update."""
    if part.hook != "rlm_samplers":
        return
    named = {datum.name for datum in data_of(part.target)}
    if update_of(part.target) and "count" not in named:
        hint = "name `count`: then it is called before every generation"
        raise PluginError(
            "has `update`, but the order of an epoch cannot change within it", where=part.where, hint=hint
        )
    if named & {"count", "draw"} and ("epoch" in named or "count" not in named):
        problem = f"requires {' and '.join(sorted(named & {'count', 'draw', 'epoch'}))}"
        allowed = "`epoch` (the order of an epoch), or `count`, with or without `draw` (called before every generation)"
        raise PluginError(problem, where=part.where, allowed=allowed)


def _check_knobs(part: Part) -> None:
    """Check that a knob has a name that a recipe can use, an annotation, and a default that fits it."""
    knobs = knobs_of(part.target)
    for knob in knobs:
        if knob.name in ("name", *HOOKS[part.hook].options):
            problem = f"a knob is called '{knob.name}', a key that recipes use for something else"
            raise PluginError(problem, where=part.where, hint="give it another name")
    defaults = {knob.name: knob.default for knob in knobs if knob.default is not Parameter.empty}
    try:
        part.knobs.model_validate(defaults)
    except pydantic.ValidationError as error:
        wrong = [entry for entry in error.errors() if entry["type"] != "missing"]  # a recipe must give those
        if wrong:
            field_error = most_specific_error(wrong, defaults)
            name = str(field_error.address[0])
            problem = f"the default of knob '{name}' does not fit its annotation: {field_error.problem}"
            hint = "annotate it `… | None`" if defaults[name] is None else ""
            raise PluginError(problem, where=part.where, hint=hint) from None
    except TypeError as error:
        raise PluginError(f"the constraint of a knob does not fit its type: {error}", where=part.where) from error
