"""Checks of the columns that rewards, trainers and rollout sources require of a data set."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.recipe.checks.address import prefixed_address
from rlm_plugins.registry.import_path import call_with_accepted
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import ChecksItself, columns_of
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage_settings import Reward

NOT_FOR_REWARDS = ("prompt", "completion", "demonstration")
"""Columns that rewards cannot name; they get ``prompts`` and ``completions`` instead."""


def columns(rows: Any) -> list[str]:
    """Return the columns of a data set in any form; empty if it has no examples."""
    named = getattr(rows, "column_names", None)
    if hasattr(rows, "__len__") and len(rows) == 0:
        return []
    return list(named) if named else list(next(iter(rows), {}))


def check_columns(
    environment_spec: EnvironmentSpec, kind: str, rewards: Sequence[Reward], name: str, where: str
) -> None:
    """Check that the data set has the columns that rewards require.

    Args:
        environment_spec: The data sets.
        kind: ``training`` or ``held-out``.
        rewards: In the order of the recipe.
        name: Of the environment, for errors.
        where: Address of the rewards.

    Raises:
        RecipeError: It names the reward, the column, and the columns there are.
    """
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
                    hint=nearest(datum, [*names, *sample]),
                )
            if datum in ("episodes", "environments") and not environment_spec.multi_turn:
                problem = f"the reward '{reward.label}' requires `{datum}`, but '{name}' is a single-turn environment"
                raise RecipeError(problem, where=f"{where}[{number}]")


def check_trainer_columns(
    environment_spec: EnvironmentSpec, required: Sequence[str], name: str, where: str, *, held_out: bool = False
) -> None:
    """Check that the examples (or the held-out examples) have the columns that the trainer requires.

    Raises:
        RecipeError: It names the column and those there are.
    """
    rows, kind = (environment_spec.test, "held-out") if held_out else (environment_spec.train, "training")
    names = columns(rows)
    for column in (column for column in required if column not in names and (names or not held_out)):
        problem = f"the algorithm requires the column '{column}', which the {kind} examples of '{name}' lack"
        raise RecipeError(problem, where=where, allowed=", ".join(names), hint=nearest(column, names))


def check_parts(
    parts: Iterable[tuple[Bound, str]], lora: Mapping[str, Any] | None, environment_spec: EnvironmentSpec
) -> None:
    """Call the method `check` of every part that has one.

    Args:
        parts: Rewards and parts of the equation, with their addresses.
        lora: The policy's adapter (None: all weights are trained), which a `check` may name.
        environment_spec: The data sets; a `check` may name `columns`, those of the training set.

    Raises:
        RecipeError: As raised by the part, with its address.
    """
    for part, where in parts:
        if isinstance(part.target, ChecksItself):
            with prefixed_address(where):
                call_with_accepted(part.target.check, {"lora": lora, "columns": columns(environment_spec.train)})


def check_source_columns(environment_spec: EnvironmentSpec, sources: Sequence[Bound], name: str, where: str) -> None:
    """Check that the data set has the columns that rollout sources require, and call their `check`.

    A `check` that names ``prompts`` gets those of the training set.

    Raises:
        RecipeError: It names the source, the column, and the columns there are.
    """
    names = columns(environment_spec.train)
    for number, source in enumerate(sources):
        for column in (column for column in columns_of(source.target) if column not in names):
            problem = f"'{source.part.name}' requires the column '{column}', which the examples of '{name}' lack"
            allowed, hint = ", ".join(names), nearest(column, names)
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
