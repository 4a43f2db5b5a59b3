"""Checks of data set and environment against the rewards, parts, trainer and model of a stage."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlm_plugins.data.images import image_columns, images_of, messages_of, undecoded
from rlm_plugins.data.tables import column_hint
from rlm_plugins.errors import RecipeError, mistyped, nearest
from rlm_plugins.recipe.checks.part_needs import iter_parts
from rlm_plugins.recipe.paths import prefixed_address
from rlm_plugins.registry.loading import call_with_accepted
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import ChecksItself, Evaluates, PlaysEpisodes, columns_of
from rlm_plugins.rewards.columns import NOT_FOR_REWARDS
from rlm_plugins.rollout.episodes import tools_of
from rlm_plugins.specs import Environment, EnvironmentSpec, ModelSpec, has_step
from rlm_plugins.stage import Reward

if TYPE_CHECKING:
    from rlm_plugins.recipe.resolve import Plan


def columns(rows: Any) -> list[str]:
    """Return the columns of a data set in any form; empty if it has no examples."""
    named = getattr(rows, "column_names", None)
    if hasattr(rows, "__len__") and len(rows) == 0:
        return []
    return list(named) if named else list(next(iter(rows), {}))


def check_data(plan: Plan, environment_spec: EnvironmentSpec) -> None:
    """Check the data sets and the environment of a stage against its trainer, parts and rewards."""
    stage, name = plan.stage, plan.environment.part.name
    where, rewards = plan.address("environment"), plan.address("rewards")
    check_environment(environment_spec, name, where)
    _check_trainer_columns(environment_spec, columns_of(stage.trainer), name, where)
    if stage.evaluation is not None and isinstance(stage.trainer, Evaluates):  # it requires the same columns
        _check_trainer_columns(environment_spec, columns_of(stage.trainer), name, where, held_out=True)
    if any(plan.slots.values()):
        check_multi_turn_parts(environment_spec, plan.slots, name, plan.address("algorithm"))
    _check_source_columns(environment_spec, plan.slots["rollouts"], name, plan.address("algorithm", "rollouts"))
    if any(plan.slots.values()) and not plan.slots["rollouts"]:  # a rollout source may add any column
        check_columns(environment_spec, "training", stage.rewards, name, rewards)
    _check_parts(plan, environment_spec)
    if stage.evaluation is not None:  # the policy alone answers held-out prompts
        check_columns(environment_spec, "held-out", stage.rewards, name, rewards)


def check_columns(
    environment_spec: EnvironmentSpec, kind: str, rewards: Sequence[Reward], name: str, where: str
) -> None:
    """Check that the `training` or `held-out` examples (`kind`) have the columns that rewards require."""
    rows = environment_spec.train if kind == "training" else environment_spec.test
    names = [column for column in columns(rows) if column not in NOT_FOR_REWARDS]
    for number, reward in enumerate(rewards if columns(rows) else ()):
        for datum in reward.part.part.required_data:
            sample = reward.part.part.sample
            if datum not in sample and datum not in names:
                raise RecipeError(
                    f"the reward '{reward.label}' requires the column '{datum}', which the {kind} examples of '{name}' "
                    "lack",
                    where=f"{where}[{number}]",
                    allowed=f"the columns {', '.join(names) or '(none)'}; or {', '.join(sample)}",
                    hint=column_hint(datum, names) or nearest(datum, sample),
                )
            if datum in ("episodes", "environments") and not environment_spec.multi_turn:
                problem = f"the reward '{reward.label}' requires `{datum}`, but '{name}' is a single-turn environment"
                raise RecipeError(problem, where=f"{where}[{number}]")


def _check_trainer_columns(
    environment_spec: EnvironmentSpec, required: Sequence[str], name: str, where: str, *, held_out: bool = False
) -> None:
    """Check that the examples (or the held-out examples) have the columns that the trainer requires."""
    rows, kind = (environment_spec.test, "held-out") if held_out else (environment_spec.train, "training")
    names = columns(rows)
    for column in (column for column in required if column not in names and (names or not held_out)):
        problem = f"the algorithm requires the column '{column}', which the {kind} examples of '{name}' lack"
        raise RecipeError(problem, where=where, allowed=", ".join(names), hint=column_hint(column, names))


def _check_parts(plan: Plan, environment_spec: EnvironmentSpec) -> None:
    """Call the method `check` of rewards, parts and engine that have one; that of a source is called before."""
    stage = plan.stage
    available = {"lora": stage.lora, "columns": columns(environment_spec.train), "rewards": stage.rewards}
    parts = [(reward.part, plan.address("rewards", number)) for number, reward in enumerate(stage.rewards)]
    slots = iter_parts(plan.slots, plan.address("algorithm"))
    parts += [(bound, where) for slot, bound, where in slots if slot != "rollouts"]
    parts += [] if stage.engine is None else [(stage.engine, plan.address("engine"))]
    for part, where in parts:
        if isinstance(part.target, ChecksItself):
            with prefixed_address(where):
                call_with_accepted(part.target.check, {**part.knobs, **available})


def _check_source_columns(environment_spec: EnvironmentSpec, sources: Sequence[Bound], name: str, where: str) -> None:
    """Check that the data set has the columns that rollout sources require, and call their `check`.

    A `check` that names ``prompts`` gets those of the training set.
    """
    names = columns(environment_spec.train)
    for number, source in enumerate(sources):
        for column in (column for column in columns_of(source.target) if column not in names):
            problem = f"'{source.part.name}' requires the column '{column}', which the examples of '{name}' lack"
            allowed, hint = ", ".join(names), column_hint(column, names)
            raise RecipeError(problem, where=f"{where}[{number}]", allowed=allowed, hint=hint)
        if isinstance(source.target, ChecksItself):
            with prefixed_address(f"{where}[{number}]"):
                _check_source(source.target.check, environment_spec)


def _check_source(check: Callable[..., None], environment_spec: EnvironmentSpec) -> None:
    rows = environment_spec.train
    if "prompts" not in inspect.signature(check).parameters:
        check()
    elif not hasattr(rows, "__len__"):
        check(prompts=None)
    else:
        check(prompts=[row["prompt"] for row in rows] if isinstance(rows, Sequence) else rows["prompt"])


def check_environment(environment_spec: EnvironmentSpec, name: str, where: str) -> None:
    """Check that an environment can be created and reset with the columns of its data set, and has actions."""
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
        allowed = "a class like rlm_plugins.specs.Environment"
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
    """Check that the parts of an algorithm fit the environment: single-turn or multi-turn."""
    for number, source in enumerate(slots["rollouts"]):
        _check_turns(environment_spec, source, name, f"{where}.rollouts[{number}]")
    for _, part, address in iter_parts(slots, where):
        if environment_spec.multi_turn and (sampling := {"generate", "rewards_of"} & {*part.part.required_data}):
            problem = f"'{part.part.name}' requires `{max(sampling)}`, but '{name}' is a multi-turn environment"
            raise RecipeError(
                problem, where=address, hint="choose a single-turn environment, or a part that samples nothing"
            )
        of_turns = {"turn_rewards", "observation_mask"} & {*part.part.required_data}
        if of_turns and not environment_spec.multi_turn:
            problem = f"'{part.part.name}' requires `{max(of_turns)}`, but '{name}' is a single-turn environment"
            raise RecipeError(problem, where=address, hint="choose a multi-turn environment, or leave it out")


def _check_turns(environment_spec: EnvironmentSpec, source: Bound, name: str, where: str) -> None:
    """Raise RecipeError if a rollout source generates single turns, or episodes, where the environment does not."""
    plays_episodes = isinstance(source.target, PlaysEpisodes) and source.target.plays_episodes
    if environment_spec.multi_turn and not plays_episodes:
        problem = f"'{name}' is a multi-turn environment, and the source '{source.part.name}' generates single turns"
        raise RecipeError(problem, where=where, hint="`rollouts: []`: the policy generates all")
    if plays_episodes and not environment_spec.multi_turn:
        problem = f"'{source.part.name}' generates episodes, and '{name}' is a single-turn environment"
        raise RecipeError(problem, where=where, hint="choose a multi-turn environment, or another source")


def check_images(environment_spec: EnvironmentSpec, source: ModelSpec, produces: str, critic: Any, where: str) -> None:
    """Check that a model sees the images of its examples, and that the stage can train on them."""
    names = image_columns(columns(environment_spec.train))
    if not names:
        return
    column = f"the examples have a column '{names[0]}'"
    if source.processor is None:
        hint = "choose a vision-language model, or rename or remove the column"
        raise RecipeError(f"{column}, and the model '{source.origin}' takes no images", where=where, hint=hint)
    for is_unsupported, feature in (
        (produces != "policy", f"the trainer of a {produces.replace('_', ' ')}"),
        (critic is not None, "a critic"),
        (environment_spec.multi_turn, "an environment of several turns"),
    ):
        if is_unsupported:
            raise RecipeError(f"{column}, and {feature} takes no images", where=where, hint="remove the column")
    first = next(iter(undecoded(environment_spec.train)))
    if isinstance(first["prompt"], str):
        hint = "images belong to a message: `chat: true`"
        raise RecipeError(f"{column}, and the prompts are plain text", where=where, hint=hint)
    if images_of(first):
        messages_of(first)
