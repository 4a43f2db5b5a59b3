"""Contract of a part with its hook: signature, optional members, and the errors for breaking it.

Of a class, `__call__` has the data, and the keyword-only arguments of `__init__` are the knobs.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import pydantic
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.warnings import ArbitraryTypeWarning

from rlm_plugins.equation.batch import PER_COMPLETION, SCORING, names
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import PluginError, nearest
from rlm_plugins.registry.protocols import MEMBERS, Stateful, Updates
from rlm_plugins.registry.setting import Section, Setting, most_specific_error
from rlm_plugins.specs import Algorithm

if TYPE_CHECKING:
    from rlm_plugins.registry.part import Part


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


def accepted(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the arguments that a function has parameters for; all, where it takes any."""
    parameters = inspect.signature(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {name: value for name, value in arguments.items() if takes_any or name in parameters}


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
    """Return the knobs as a pydantic model: types from the annotations, unknown names forbidden."""
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


def check_members(part: Part) -> None:
    """Check that no public member (of a class: method) is a misspelling of an optional member."""
    members = _members(part.target)
    for name in members:
        if inspect.isclass(part.target) and not callable(members[name]):
            continue
        close = [] if name in MEMBERS else get_close_matches(name, MEMBERS, n=1, cutoff=0.85)
        if close:
            raise PluginError(
                f"has a member '{name}', which is never used",
                where=part.where,
                hint=f"did you mean `{close[0]}`? Otherwise rename it, or begin it with an underscore",
            )


def _members(target: Any) -> dict[str, Any]:
    """Return the public attributes of a function, or of a class and its bases."""
    owners = target.__mro__ if inspect.isclass(target) else [target]
    members: dict[str, Any] = {}
    for owner in owners:
        members |= getattr(owner, "__dict__", {})
    return {name: value for name, value in members.items() if not name.startswith("_")}


_OBJECTS: dict[str, tuple[Any, str]] = {
    "rlm_algorithms": (Algorithm, "rlm_plugins.specs.Algorithm"),
    "rlm_settings": (Setting, "rlm_plugins.registry.setting.Setting"),
    "rlm_commands": (Callable, "a function"),
}
"""Hooks whose entries are objects without data and knobs."""
_CLASSES = {"rlm_trainers": "build", "rlm_engines": "generate", "rlm_observers": "", "rlm_sections": ""}
"""Hooks whose parts are classes that are not called with data → the method that they must have."""


def check(part: Part) -> None:
    """Check a part against the contract of its hook."""
    if part.hook in _OBJECTS:
        kind, allowed = _OBJECTS[part.hook]
        if not isinstance(part.target, kind):
            raise PluginError(f"is of type {type(part.target).__name__}", where=part.where, allowed=allowed)
        return
    _check_call(part)
    if part.hook in _CLASSES and not inspect.isclass(part.target):
        raise PluginError(f"is of type {type(part.target).__name__}", where=part.where, allowed="a class")
    if part.hook == "rlm_sections" and not issubclass(part.target, Section):
        allowed = "a class derived from rlm_plugins.registry.setting.Section"
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
