"""Checks of multi-turn environments, and of parts that require one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from rlm_plugins.environment import Environment, has_step
from rlm_plugins.errors import RecipeError, mistyped
from rlm_plugins.recipe.checks.data_needs import iter_parts
from rlm_plugins.recipe.checks.required_columns import columns
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import PlaysEpisodes
from rlm_plugins.rollout.tools import tools_of
from rlm_plugins.specs import EnvironmentSpec


def check_environment(environment_spec: EnvironmentSpec, name: str, where: str) -> None:
    """Check that an environment can be created and reset with the columns of its data set, and has actions.

    Args:
        environment_spec: The data sets and the environment.
        name: Of the environment, for errors.
        where: Its address.

    Raises:
        RecipeError: It cannot be created, has neither `step` nor tools, has invalid limits, or requires a column that
            is missing.
    """
    if environment_spec.environment is None:
        return
    try:
        instance = environment_spec.environment()
    except Exception as error:
        problem = f"the environment of '{name}' cannot be created: {type(error).__name__}: {error}"
        raise RecipeError(problem, where=where) from error
    class_name = type(instance).__name__
    defect = "" if has_step(instance) or tools_of(instance) else "neither `step` nor a tool"
    if not callable(getattr(instance, "reset", None)):
        defect = "no `reset`"
    if defect:
        allowed = "a class like rlm_plugins.environment.Environment"
        raise RecipeError(f"{class_name}, the environment of '{name}', has {defect}", where=where, allowed=allowed)
    for limit, type_, allowed in _LIMITS:
        value = getattr(instance, limit, getattr(Environment, limit))
        if not isinstance(value, type_) or value <= 0:
            raise RecipeError(f"expected {allowed} as `{class_name}.{limit}`, got {value!r}", where=where)
    parameters = inspect.signature(instance.reset).parameters.values()
    required = [
        parameter.name for parameter in parameters if parameter.default is parameter.empty and parameter.kind in _NAMED
    ]
    for rows in (environment_spec.train, environment_spec.test):
        names = columns(rows)
        for column in (column for column in required if names and column not in names):
            problem = f"`{class_name}.reset` requires the column '{column}', which the examples of '{name}' lack"
            raise RecipeError(problem, where=where, allowed=", ".join(names), hint=mistyped(column, names))


_LIMITS: tuple[tuple[str, Any, str], ...] = (
    ("turns", int, "a whole number from 1 on"),
    ("seconds", int | float, "a number above 0"),
)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def check_multi_turn_parts(environment_spec: EnvironmentSpec, slots: Mapping[str, Any], name: str, where: str) -> None:
    """Check that the parts of an algorithm fit the environment: single-turn or multi-turn.

    Args:
        environment_spec: That of the stage.
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        name: Of the environment, for errors.
        where: Address of the algorithm.

    Raises:
        RecipeError: A part requires turn rewards, or generates whole completions, where the environment does not.
    """
    for number, source in enumerate(slots["rollouts"]):
        _check_source(environment_spec, source, name, f"{where}.rollouts[{number}]")
    for _, part, address in iter_parts(slots, where):
        if environment_spec.multi_turn and (sampling := {"generate", "rewards_of"} & {*part.part.required_data}):
            problem = f"'{part.part.name}' requires `{max(sampling)}`, but '{name}' is a multi-turn environment"
            raise RecipeError(
                problem, where=address, hint="choose a single-turn environment, or a part that samples nothing"
            )
        if "turn_rewards" in part.part.required_data and not environment_spec.multi_turn:
            problem = f"'{part.part.name}' requires `turn_rewards`, but '{name}' is a single-turn environment"
            raise RecipeError(problem, where=address, hint="choose a multi-turn environment, or leave it out")


def _check_source(environment_spec: EnvironmentSpec, source: Bound, name: str, where: str) -> None:
    """Raise RecipeError if a rollout source generates single turns, or episodes, where the environment does not."""
    plays_episodes = isinstance(source.target, PlaysEpisodes) and source.target.plays_episodes
    if environment_spec.multi_turn and not plays_episodes:
        problem = f"'{name}' is a multi-turn environment, and the source '{source.part.name}' generates single turns"
        raise RecipeError(problem, where=where, hint="`rollouts: []`: the policy generates all")
    if plays_episodes and not environment_spec.multi_turn:
        problem = f"'{source.part.name}' generates episodes, and '{name}' is a single-turn environment"
        raise RecipeError(problem, where=where, hint="choose a multi-turn environment, or another source")
