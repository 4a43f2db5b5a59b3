"""Parts: a function or class whose signature declares data and knobs, and a part bound to its knobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter
from typing import Any, cast

import pydantic
import pydantic_core

from rlm_plugins.equation.batch import PER_COMPLETION, SAMPLE
from rlm_plugins.equation.glossary import suggest
from rlm_plugins.equation.hooks import HOOKS, option_hint
from rlm_plugins.equation.knobs import Schedule, as_recipe_value, numbers, read, value_at
from rlm_plugins.errors import PartError, RecipeError, RlmError, mistyped
from rlm_plugins.registry import contract as signature_check
from rlm_plugins.registry.contract import data_of, file_of, schema_of, update_of
from rlm_plugins.registry.protocols import UsesPolicy
from rlm_plugins.registry.setting import address_text, most_specific_error


def bound_knobs(part: Part, settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return every knob of `part` with its value or schedule, defaults included."""
    mappings = [name for name, value in settings.items() if isinstance(value, Mapping | Schedule)]
    scheduled = [name for name in mappings if _number_types(part, name)]
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


def _number_types(part: Part, name: str) -> set[type]:
    field = part.knobs.model_fields.get(name)
    return numbers(field.annotation) if field is not None else set()


def _read(part: Part, name: str, value: Any, where: str) -> Schedule:
    if reason := no_schedules(part):
        problem = f"'{part.name}' takes no schedules: {reason}"
        raise RecipeError(problem, where=f"{where}.{name}", allowed="a number")
    return read(as_recipe_value(value), f"{where}.{name}", whole=_number_types(part, name) == {int})


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


@dataclass(frozen=True)
class Part:
    """One entry of the registry: a function or class that a plugin registers under a name.

    Args:
        hook: Its hook (``rlm_rewards``).
        name: Its bare name (``accuracy``).
        plugin: The plugin that registers it.
        target: The function, or the class of a stateful part; for ``rlm_algorithms`` the algorithm.
        hook_file: The file of its hook implementation.
    """

    hook: str
    name: str
    plugin: str
    target: Any
    hook_file: str = field(default="?", compare=False, kw_only=True)

    @property
    def full_name(self) -> str:
        """``plugin/name``, which is never ambiguous."""
        return f"{self.plugin}/{self.name}"

    @cached_property
    def file(self) -> str:
        """Its source file, for messages and ``rlm explain``; of a group of commands that of its hook."""
        is_group = self.hook == "rlm_commands" and not inspect.isfunction(self.target)
        return self.hook_file if is_group else file_of(self.target) or self.hook_file

    @property
    def location(self) -> str:
        """Name, hook and file, for errors of a call."""
        return f"part '{self.full_name}' ({self.hook}, {self.file})"

    @property
    def where(self) -> str:
        """Plugin, hook, name and file, for messages."""
        return f"plugin '{self.plugin}', {self.hook} '{self.name}' ({self.file})"

    @property
    def summary(self) -> str:
        """The first line of its docstring; in front of it the panel of a command, or `default` for such a section."""
        info = getattr(self.target, "info", None)  # a group of commands has its help there
        text = (info.help if info is not None else inspect.getdoc(self.target)) or ""
        panel = getattr(self.target, "panel", "") or ("default" if getattr(self.target, "on_by_default", False) else "")
        return (f"{panel}|" if panel else "") + str(text).partition("\n")[0]

    @cached_property
    def _parameters(self) -> list[Parameter]:
        return data_of(self.target)

    @property
    def required_data(self) -> tuple[str, ...]:
        """Names of the data that it requires."""
        return tuple(p.name for p in self._parameters if p.kind is not p.VAR_KEYWORD and p.default is p.empty)

    @property
    def optional_data(self) -> tuple[str, ...]:
        """Names of its optional data."""
        return tuple(p.name for p in self._parameters if p.default is None)

    @property
    def data(self) -> tuple[str, ...]:
        """Names of its data: the required, then the optional ones."""
        return (*self.required_data, *self.optional_data)

    @cached_property
    def update_required_data(self) -> tuple[str, ...]:
        """Names of the data that its method `update` requires; empty without one."""
        return tuple(p.name for p in update_of(self.target) if p.default is p.empty)

    @cached_property
    def update_optional_data(self) -> tuple[str, ...]:
        """Names of the optional data of its method `update`."""
        return tuple(p.name for p in update_of(self.target) if p.default is None)

    def requires(self, name: str) -> bool:
        """Return True if the part or its method `update` requires the data `name`."""
        return name in self.required_data or name in self.update_required_data

    @property
    def update_data(self) -> tuple[str, ...]:
        """Names of the data of its method `update`: the required, then the optional ones."""
        return (*self.update_required_data, *self.update_optional_data)

    @property
    def takes_kwargs(self) -> bool:
        """True if it ends in ``**kwargs``: a TRL reward function."""
        return any(p.kind is p.VAR_KEYWORD for p in self._parameters)

    @property
    def is_per_completion(self) -> bool:
        """True if it is a reward of one completion, called once per completion."""
        return self.hook == "rlm_rewards" and "completion" in self.required_data and not self.takes_kwargs

    @property
    def sample(self) -> Mapping[str, str]:
        """Data of a reward besides columns → one line of meaning."""
        return {**SAMPLE, **PER_COMPLETION} if self.is_per_completion else SAMPLE

    @cached_property
    def knobs(self) -> type[pydantic.BaseModel]:
        """The knobs as a pydantic model: types from the annotations, unknown names forbidden."""
        return schema_of(self.name, self.target, where=self.where)

    def check(self) -> None:
        """Check the part against the contract of its hook."""
        signature_check.check(self)

    def bind(self, settings: Mapping[str, Any], *, where: str = "") -> Bound:
        """Validate the knobs, and create the instance if the part is a class.

        Args:
            settings: Knob name → value or schedule, as the recipe gives them.
            where: Recipe path, for the error.

        Raises:
            RecipeError: An unknown knob, a wrong value, or one that the class refuses.
        """
        where = where or self.full_name
        knobs = bound_knobs(self, settings, where)
        return Bound(part=self, knobs=knobs, target=self._instance(knobs, where))

    def _instance(self, knobs: Mapping[str, Any], where: str) -> Any:
        if not inspect.isclass(self.target):
            return self.target
        try:
            return self.target(**knobs)
        except RlmError as error:
            if error.where:
                raise
            problem = f"'{self.name}' refuses its knobs: {error.problem}"
            raise RecipeError(problem, where=where, allowed=error.allowed, hint=error.hint) from error.__cause__
        except Exception as error:
            raise RecipeError(
                f"'{self.name}' refuses its knobs: {type(error).__name__}: {error}", where=where
            ) from error


@dataclass(frozen=True)
class Bound:
    """A part bound to its knobs. Called with a record (a `Batch`, say), it is passed the fields that it names.

    Args:
        part: The entry of the registry.
        knobs: Every knob with its value or schedule, defaults included.
        target: The function, or the instance that holds the state.
        options: Values of the recipe keys that its hook defines (`Hook.options`): ``beta``, ``refill``, …
    """

    part: Part
    knobs: dict[str, Any]
    target: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    def __call__(self, record: object) -> Any:
        """Call the part with the fields of `record` that it names."""
        return self.target(**self.arguments(record))

    def arguments(self, record: object) -> dict[str, Any]:
        """Return the fields of `record` that the part names, and its knobs."""
        fields = self._fields(record, self.part.required_data, self.part.optional_data)
        return fields | self._knobs_at(getattr(record, "step", None))

    def call(self, data: Mapping[str, Any], step: int | None = None) -> Any:
        """Call the part with the data, name → value, and its knobs after `step` optimizer steps."""
        return self.target(**data, **self._knobs_at(step))

    def update(self, record: object) -> None:
        """Call the method `update` of the part, if it has one, with the fields of `record` that it names."""
        part, target = self.part, cast(Any, self.target)
        if part.update_data:
            target.update(**self._fields(record, part.update_required_data, part.update_optional_data, "`update` "))

    def _knobs_at(self, step: int | None) -> dict[str, Any]:
        """Return the knobs to call the part with; an instance already has its knobs."""
        return {} if self.stateful else {name: value_at(value, step) for name, value in self.knobs.items()}

    def _fields(self, record: object, required: Sequence[str], optional: Sequence[str], of: str = "") -> dict[str, Any]:
        """Return the fields of `record` by name; names that the part logs are prefixed with the recipe key."""
        data = {name: getattr(record, name) for name in (*required, *optional)}
        for name in required:
            if data[name] is None:
                problem = f"{of}requires `{name}`, which this configuration does not provide"
                raise PartError(problem, where=self.part.location)
        if data.get("log") is not None:
            log, key = data["log"], HOOKS[self.part.hook].key
            data["log"] = lambda name, x: log(f"{key}/{name}", x)
        return data

    @property
    def beta(self) -> float | Schedule:
        """Coefficient of a penalty, or its schedule; 1 for other parts."""
        return cast(float | Schedule, self.options.get("beta", 1.0))

    @property
    def is_async(self) -> bool:
        """True if it is an ``async def``."""
        target = self.target if inspect.isfunction(self.target) else type(self.target).__call__
        return inspect.iscoroutinefunction(target)

    @property
    def setup_targets(self) -> list[Any]:
        """Objects with a method `setup`: the part itself, and values of its knobs."""
        return [target for target in (self.target, *self.knobs.values()) if isinstance(target, UsesPolicy)]

    @property
    def stateful(self) -> bool:
        """True if the part is a class, instantiated once per run."""
        return inspect.isclass(self.part.target)
