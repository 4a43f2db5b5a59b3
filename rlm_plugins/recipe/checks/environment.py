"""What a world that answers asks of a recipe, and what only such a world can give."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from rlm_plugins.environment import Environment, has_step
from rlm_plugins.errors import RecipeError, mistyped
from rlm_plugins.recipe.checks.data_needs import standing
from rlm_plugins.recipe.checks.dataset import columns
from rlm_plugins.rollout.tools import tools_of
from rlm_plugins.specs import EnvironmentSpec


def check_environment(environment_spec: EnvironmentSpec, name: str, where: str) -> None:
    """Whether an environment can be begun with the columns of its rows, and has something to act by.

    Args:
        world: With an environment.
        name: Of the environment, for errors.
        where: Its address.

    Raises:
        RecipeError: It cannot be made, has neither `step` nor tools, has limits that are none, or names a column
            that is not there.
    """
    if environment_spec.environment is None:
        return
    try:
        made = environment_spec.environment()
    except Exception as error:
        problem = f"the environment of '{name}' cannot be made: {type(error).__name__}: {error}"
        raise RecipeError(problem, where=where) from error
    kind = type(made).__name__
    lacks = "" if has_step(made) or tools_of(made) else "neither `step` nor a tool"
    if lacks := lacks if callable(getattr(made, "reset", None)) else "no `reset`":
        allowed = "a class as rlm_plugins.environment.Environment says"
        raise RecipeError(f"{kind}, the environment of '{name}', has {lacks}", where=where, allowed=allowed)
    for limit, type_, allowed in _LIMITS:
        said = getattr(made, limit, getattr(Environment, limit))
        if not isinstance(said, type_) or said <= 0:
            raise RecipeError(f"`{kind}.{limit}` is {said!r}", where=where, allowed=allowed)
    known = inspect.signature(made.reset).parameters.values()
    wanted = [
        parameter.name for parameter in known if parameter.default is parameter.empty and parameter.kind in _NAMED
    ]
    for rows in (environment_spec.train, environment_spec.test):
        there = columns(rows)
        for column in (column for column in wanted if there and column not in there):
            problem = f"`{kind}.reset` names the column '{column}', which the rows of '{name}' do not have"
            raise RecipeError(problem, where=where, allowed=", ".join(there), hint=mistyped(column, there))


_LIMITS: tuple[tuple[str, Any, str], ...] = (
    ("turns", int, "a whole number from 1 on"),
    ("seconds", int | float, "a number above 0"),
)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def check_playing(environment_spec: EnvironmentSpec, slots: Mapping[str, Any], name: str, where: str) -> None:
    """Whether the parts of an algorithm fit a world of one turn, or of several.

    Args:
        world: Of the stage.
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        name: Of the environment, for errors.
        where: Address of the algorithm.

    Raises:
        RecipeError: A part names what turns are paid, and there are none; or somebody else is to write turns.
    """
    if environment_spec.multi_turn and slots["rollouts"]:
        problem = f"'{name}' answers every turn, and rollout sources write a row in one go"
        raise RecipeError(problem, where=f"{where}.rollouts", hint="`rollouts: []`: the policy plays every row")
    for _, part, address in standing(slots, where):
        if environment_spec.multi_turn and (alone := {"generate", "rewards_of"} & {*part.part.needs}):
            problem = f"'{part.part.name}' asks for {max(alone)}, and rows of '{name}' are not written in one go"
            raise RecipeError(problem, where=address, hint="choose a world of one turn, or a part that tries nothing")
        if "turn_rewards" in part.part.needs and not environment_spec.multi_turn:
            problem = f"'{part.part.name}' needs turn_rewards, and '{name}' is a world of one turn: it pays none"
            raise RecipeError(problem, where=address, hint="choose a world that answers, or leave it out")
