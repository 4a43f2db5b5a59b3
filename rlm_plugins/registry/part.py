"""A part: a function whose signature says what it needs and what may be turned, and the same with its knobs turned."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter
from typing import Any, cast

import pydantic

from rlm_plugins import schedule
from rlm_plugins.batch import PER_COMPLETION, SAMPLE
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.registry import contract as signature_check
from rlm_plugins.registry.binding import bound_knobs
from rlm_plugins.registry.protocols import UsesPolicy
from rlm_plugins.registry.signature import data_of, file_of, schema_of, update_of


@dataclass(frozen=True)
class Part:
    """One entry of the registry: who offers which function under which name.

    Args:
        hook: The hook it came through (``rlm_rewards``).
        name: Its bare name (``accuracy``).
        plugin: The plugin that offers it; ``plugin/name`` is its full name.
        target: The function, or the class where the maths has memory; for ``rlm_algorithms`` a row.
        offered_in: The file of the hook that offers it.
    """

    hook: str
    name: str
    plugin: str
    target: Any
    offered_in: str = field(default="?", compare=False, kw_only=True)

    @property
    def full_name(self) -> str:
        """``plugin/name``, which is never ambiguous."""
        return f"{self.plugin}/{self.name}"

    @cached_property
    def file(self) -> str:
        """The source file it stands in, for error messages and ``rlm explain``."""
        return file_of(self.target) or self.offered_in

    @property
    def where(self) -> str:
        """Plugin, hook, name and file, for error messages."""
        return f"plugin '{self.plugin}', {self.hook} '{self.name}' ({self.file})"

    @cached_property
    def _data(self) -> list[Parameter]:
        return data_of(self.target)

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the data it cannot do without."""
        return tuple(p.name for p in self._data if p.kind is not p.VAR_KEYWORD and p.default is p.empty)

    @property
    def welcomes(self) -> tuple[str, ...]:
        """Names of the data it uses when something supplies them."""
        return tuple(p.name for p in self._data if p.default is None)

    @cached_property
    def update_needs(self) -> tuple[str, ...]:
        """Names of the data its method `update` cannot do without; empty where it has none."""
        return tuple(p.name for p in update_of(self.target) if p.default is p.empty)

    @cached_property
    def update_welcomes(self) -> tuple[str, ...]:
        """Names of the data its method `update` uses when something supplies them."""
        return tuple(p.name for p in update_of(self.target) if p.default is None)

    @property
    def takes_everything(self) -> bool:
        """Whether it ends in ``**kwargs``: a reward written for TRL."""
        return any(p.kind is p.VAR_KEYWORD for p in self._data)

    @property
    def by_row(self) -> bool:
        """Whether it is a reward of one completion, which is called row by row."""
        return self.hook == "rlm_rewards" and "completion" in self.needs and not self.takes_everything

    @property
    def sample(self) -> Mapping[str, str]:
        """What a reward may name beside columns → one line of meaning."""
        return {**SAMPLE, **PER_COMPLETION} if self.by_row else SAMPLE

    @cached_property
    def knobs(self) -> type[pydantic.BaseModel]:
        """The knobs as a pydantic model: types from the annotations, unknown names forbidden.

        Raises:
            PluginError: An annotation that means nothing.
        """
        return schema_of(self.name, self.target, where=self.where)

    def check(self) -> None:
        """Holds the signature against the contract of its hook.

        Raises:
            PluginError: It breaks it.
        """
        signature_check.check(self)

    def bind(self, settings: Mapping[str, Any], *, where: str = "") -> Bound:
        """Checks the knobs and makes the part ready to be called.

        Args:
            settings: Knob name → value or schedule, as the recipe gives them.
            where: Recipe path, for the error.

        Raises:
            RecipeError: An unknown knob, a value of the wrong type, or one the class refuses when it is made.
        """
        where = where or self.full_name
        knobs = bound_knobs(self, settings, where)
        return Bound(part=self, knobs=knobs, target=self._made(knobs, where))

    def _made(self, knobs: Mapping[str, Any], where: str) -> Any:
        if not inspect.isclass(self.target):
            return self.target
        try:
            return self.target(**knobs)
        except RlmError as error:
            if error.where:
                raise
            told = f"'{self.name}' refuses its knobs: {error.problem}"
            raise RecipeError(told, where=where, allowed=error.allowed, hint=error.hint) from error.__cause__
        except Exception as error:
            raise RecipeError(
                f"'{self.name}' refuses its knobs: {type(error).__name__}: {error}", where=where
            ) from error


@dataclass(frozen=True)
class Bound:
    """A part with its knobs turned. Called with a record, it takes from it what it named.

    Args:
        part: Where it comes from.
        knobs: Every knob with its value or schedule, defaults included.
        target: The function, or the instance that keeps the memory.
        beside: What the recipe says beside its name and knobs (the keys of its hook).
    """

    part: Part
    knobs: dict[str, Any]
    target: Callable[..., Any]
    beside: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    def __call__(self, record: object) -> Any:
        """Calls the part with the fields of `record` that it names."""
        given = self._of(record, (*self.part.needs, *self.part.welcomes))
        return self.call(given, getattr(record, "step", None))

    def _of(self, record: object, names: tuple[str, ...]) -> dict[str, Any]:
        """The fields of `record` called that; what the part logs is filed under its key."""
        given = {name: getattr(record, name) for name in names}
        if given.get("log") is not None:
            write, key = given["log"], HOOKS[self.part.hook].key
            given["log"] = lambda name, x: write(f"{key}/{name}", x)
        return given

    def call(self, given: Mapping[str, Any], step: int | None = None) -> Any:
        """Calls the part with `given` data and its knobs (an instance has taken its knobs already).

        Args:
            given: Name of a datum → the datum.
            step: Optimiser steps done, which a knob with a schedule depends on.
        """
        if self.stateful:
            return self.target(**given)
        return self.target(**given, **{name: schedule.at(value, step) for name, value in self.knobs.items()})

    def update(self, record: object) -> None:
        """Lets a part with a method `update` learn from what came of its work; nothing happens to the others."""
        if names := (*self.part.update_needs, *self.part.update_welcomes):
            target: Any = self.target
            target.update(**self._of(record, names))

    @property
    def beta(self) -> float | schedule.Schedule:
        """The coefficient in front of a penalty, or its schedule; 1 for everything else."""
        return cast(float | schedule.Schedule, self.beside.get("beta", 1.0))

    @property
    def waits(self) -> bool:
        """Whether it is asynchronous."""
        target = self.target if inspect.isfunction(self.target) else type(self.target).__call__
        return inspect.iscoroutinefunction(target)

    @property
    def setup_targets(self) -> list[Any]:
        """What of it has a method `setup`, and works with the policy: itself, or the value of a knob."""
        return [each for each in (self.target, *self.knobs.values()) if isinstance(each, UsesPolicy)]

    @property
    def stateful(self) -> bool:
        """Whether the part is a class, made once per run."""
        return inspect.isclass(self.part.target)
