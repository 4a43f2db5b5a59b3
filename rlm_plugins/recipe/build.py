"""Calls the environment and model parts of a plan, and lets no surprise of theirs pass without a name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar, cast

from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe.checks.data_needs import standing
from rlm_plugins.recipe.checks.dataset import (
    check_columns,
    check_engine_columns,
    check_parts,
    check_rows,
    check_source_columns,
)
from rlm_plugins.recipe.checks.environment import check_environment, check_playing
from rlm_plugins.recipe.paths import Path, spell
from rlm_plugins.recipe.resolve import Plan
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Evaluates, columns_of
from rlm_plugins.specs import EnvironmentSpec, ModelSpec

Made = TypeVar("Made")


def build_environment(plan: Plan, known: dict[str, EnvironmentSpec]) -> EnvironmentSpec:
    """The world of a stage, with its rows looked at.

    Args:
        plan: The stage.
        known: Worlds of earlier stages; the same environment with the same knobs is built once.

    Raises:
        RecipeError: The environment failed, or has rows that cannot be used.
    """
    key, name = json.dumps(plan.body["environment"]), plan.environment.part.name
    where = spell((*plan.place, "environment"))
    if key not in known:
        known[key] = _call(plan.environment, EnvironmentSpec, plan.place, "environment")
        check_rows(known[key], name, where)
        check_environment(known[key], name, where)
    engine: Any = plan.engine.target
    check_engine_columns(known[key], columns_of(engine), name, where)
    if plan.evaluation is not None and isinstance(engine, Evaluates):  # it judges by what it learns from
        check_engine_columns(known[key], columns_of(engine), name, where, held_out=True)
    if any(plan.slots.values()):
        check_playing(known[key], plan.slots, name, spell((*plan.place, "algorithm")))
    check_source_columns(known[key], plan.slots["rollouts"], name, spell((*plan.place, "algorithm", "rollouts")))
    environment_spec, rewards = known[key], spell((*plan.place, "rewards"))
    if any(plan.slots.values()) and not plan.slots["rollouts"]:  # a rollouts part may add any column
        check_columns(environment_spec, "training", plan.rewards, name, rewards)
    check_parts(_named_parts(plan, rewards), plan.body["model"].get("lora"), environment_spec)
    if plan.evaluation is not None:  # held-out rows are answered by the policy alone
        check_columns(environment_spec, "held-out", plan.rewards, name, rewards)
    return environment_spec


def _named_parts(plan: Plan, rewards: str) -> Iterator[tuple[Bound, str]]:
    """Rewards and parts of the equation, with their addresses; who writes rows has looked at them already."""
    yield from ((reward.part, f"{rewards}[{number}]") for number, reward in enumerate(plan.rewards))
    for slot, bound, where in standing(plan.slots, spell((*plan.place, "algorithm"))):
        if slot != "rollouts":
            yield bound, where


def build_source(plan: Plan) -> ModelSpec:
    """Where the weights of the first stage come from; nothing is loaded yet.

    Raises:
        RecipeError: The model part failed.
    """
    assert plan.model is not None
    return _call(plan.model, ModelSpec, plan.place, "model")


def unbuilt_source() -> ModelSpec:
    """Stands for a model that was not asked for."""

    def refuse() -> NoReturn:
        raise RlmError("this run was only described: compose it with build_world=True to load weights")

    return ModelSpec(config=cast(Any, None), tokenizer=refuse, load=refuse, origin="not built")


def _call(bound: Bound, kind: type[Made], place: Path, section: str) -> Made:
    where, part = spell((*place, section)), f"{section} '{bound.part.full_name}'"
    try:
        made = bound.call({})
    except RecipeError as error:  # a part knows its section, not the stage it stands in
        address = error.where if not error.where.startswith(section) else spell(place) + f".{error.where}"
        raise RecipeError(
            error.problem, where=address.lstrip(".") or where, allowed=error.allowed, hint=error.hint
        ) from error.__cause__
    except (Exception, SystemExit) as error:
        raise RecipeError(f"the {part} failed: {type(error).__name__}: {error}", where=where) from error
    if not isinstance(made, kind):
        problem = f"the {part} returned {type(made).__name__}"
        raise RecipeError(problem, where=where, allowed=f"rlm_plugins.specs.{kind.__name__}")
    return made
