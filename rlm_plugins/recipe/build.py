"""Construction of the data sets, the environment and the model source of a stage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeVar, cast

from rlm_plugins.data.successes import described
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe.checks.address import prefixed_address
from rlm_plugins.recipe.checks.data_needs import iter_parts
from rlm_plugins.recipe.checks.dataset import check_rows
from rlm_plugins.recipe.checks.environment import check_environment, check_multi_turn_parts
from rlm_plugins.recipe.checks.required_columns import (
    check_columns,
    check_parts,
    check_source_columns,
    check_trainer_columns,
    columns,
)
from rlm_plugins.recipe.paths import Path, format_path
from rlm_plugins.recipe.resolve import Plan
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Evaluates, PreparesExamples, columns_of
from rlm_plugins.specs import EnvironmentSpec, ModelSpec

Spec = TypeVar("Spec")


def build_environment(
    plan: Plan,
    built: dict[str, EnvironmentSpec],
    earlier: Mapping[str, EnvironmentSpec],
    *,
    held_out_only: bool = False,
) -> EnvironmentSpec:
    """Return the data sets and the environment of a stage, with their examples checked.

    Args:
        plan: The stage.
        built: Environments of earlier stages by their knobs; one with the same knobs is built once.
        earlier: Name of each earlier stage → its data sets.
        held_out_only: True if nothing is trained: training examples may be missing. Without held-out examples those of
            training are evaluated.

    Raises:
        RecipeError: The environment failed, or its examples are invalid.
    """
    key, name = json.dumps(plan.body["environment"]), plan.environment.part.name
    where = format_path((*plan.stage_path, "environment"))
    if key not in built:
        built[key] = _call(plan.environment, EnvironmentSpec, plan.stage_path, "environment")
        if built[key].successes is not None:
            built[key] = described(built[key], earlier)
        if held_out_only:
            built[key] = _with_held_out(built[key])
    trainer: Any = plan.trainer.target
    environment_spec, rewards = (
        _prepared(built[key], trainer, plan.stage_path),
        format_path((*plan.stage_path, "rewards")),
    )
    check_rows(environment_spec, name, where, with_text="demonstration" in columns_of(trainer))
    check_environment(environment_spec, name, where)
    check_trainer_columns(environment_spec, columns_of(trainer), name, where)
    if plan.evaluation is not None and isinstance(trainer, Evaluates):  # it requires the same columns
        check_trainer_columns(environment_spec, columns_of(trainer), name, where, held_out=True)
    if any(plan.slots.values()):
        check_multi_turn_parts(environment_spec, plan.slots, name, format_path((*plan.stage_path, "algorithm")))
    check_source_columns(
        environment_spec, plan.slots["rollouts"], name, format_path((*plan.stage_path, "algorithm", "rollouts"))
    )
    if any(plan.slots.values()) and not plan.slots["rollouts"]:  # a rollout source may add any column
        check_columns(environment_spec, "training", plan.rewards, name, rewards)
    check_parts(_named_parts(plan, rewards), plan.body["model"].get("lora"), environment_spec)
    if plan.evaluation is not None:  # the policy alone answers held-out prompts
        check_columns(environment_spec, "held-out", plan.rewards, name, rewards)
    return environment_spec


def build_suite(plan: Plan) -> dict[str, EnvironmentSpec]:
    """Return the further held-out sets of a stage, with the columns that its rewards require.

    Raises:
        RecipeError: An environment failed, or its examples are invalid.
    """
    suite, rewards = {}, format_path((*plan.stage_path, "rewards"))
    for name, bound in plan.suite.items():
        where = format_path((*plan.stage_path, "evaluation", "suite", name))
        suite[name] = _with_held_out(_call(bound, EnvironmentSpec, plan.stage_path, "environment"))
        check_rows(suite[name], bound.part.name, where)
        check_environment(suite[name], bound.part.name, where)
        check_columns(suite[name], "held-out", plan.rewards, bound.part.name, rewards)
    return suite


def _with_held_out(environment_spec: EnvironmentSpec) -> EnvironmentSpec:
    """Return an environment in which missing training or held-out examples are replaced by the other ones."""
    train, test = environment_spec.train, environment_spec.test
    if columns(train) == []:
        return replace(environment_spec, train=test)
    return environment_spec if len(test) else replace(environment_spec, test=train)  # type: ignore[arg-type]


def _prepared(environment_spec: EnvironmentSpec, trainer: Any, stage_path: Path) -> EnvironmentSpec:
    """Return the data sets, converted by the trainer's `prepare` if it has one."""
    if not isinstance(trainer, PreparesExamples):
        return environment_spec
    with prefixed_address(format_path(stage_path)):
        train, test = trainer.prepare(environment_spec.train), trainer.prepare(environment_spec.test)
    if train is environment_spec.train and test is environment_spec.test:
        return environment_spec
    return replace(environment_spec, train=train, test=test)


def _named_parts(plan: Plan, rewards: str) -> Iterator[tuple[Bound, str]]:
    """Yield rewards and parts of the equation with their addresses; rollout sources are checked before."""
    yield from ((reward.part, f"{rewards}[{number}]") for number, reward in enumerate(plan.rewards))
    for slot, bound, where in iter_parts(plan.slots, format_path((*plan.stage_path, "algorithm"))):
        if slot != "rollouts":
            yield bound, where


def build_source(plan: Plan) -> ModelSpec:
    """Return the source of the first stage's weights; nothing is loaded yet.

    Raises:
        RecipeError: The model part failed.
    """
    assert plan.model is not None
    return _call(plan.model, ModelSpec, plan.stage_path, "model")


def unbuilt_source() -> ModelSpec:
    """Return a model source that cannot be loaded, for stages that only describe a run."""

    def refuse() -> NoReturn:
        raise RlmError("this run has no weights: compose it with build_environment=True")

    return ModelSpec(config=cast(Any, None), tokenizer=refuse, load=refuse, origin="not built")


def _call(bound: Bound, spec_class: type[Spec], stage_path: Path, section: str) -> Spec:
    where, part = format_path((*stage_path, section)), f"{section} '{bound.part.full_name}'"
    try:
        returned = bound.call({})
    except RecipeError as error:  # the error names the section of the part, not the stage
        address = error.where if not error.where.startswith(section) else format_path(stage_path) + f".{error.where}"
        raise RecipeError(
            error.problem, where=address.lstrip(".") or where, allowed=error.allowed, hint=error.hint
        ) from error.__cause__
    except (Exception, SystemExit) as error:
        raise RecipeError(f"the {part} failed: {type(error).__name__}: {error}", where=where) from error
    if not isinstance(returned, spec_class):
        problem = f"expected rlm_plugins.specs.{spec_class.__name__} from the {part}, got {type(returned).__name__}"
        raise RecipeError(problem, where=where)
    return returned
