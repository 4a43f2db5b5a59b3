"""The stages of a recipe, resolved, with names, knobs and requirements checked; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.checks.address import prefixed_address
from rlm_plugins.recipe.checks.data_needs import check_symbols, iter_parts
from rlm_plugins.recipe.checks.earlier_stages import check_earlier_stages
from rlm_plugins.recipe.checks.group_size import check_refills
from rlm_plugins.recipe.checks.names import check_reward_names
from rlm_plugins.recipe.checks.rollouts import check_sources
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.paths import Path, format_path
from rlm_plugins.recipe.resolve import Plan, resolve
from rlm_plugins.recipe.sections import KEYS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import needs_equation


def check_names(recipe: Recipe, registry: Registry) -> None:
    """Check names, knobs and requirements of all stages, before torch is imported."""
    with located(recipe):
        plans_of(recipe, registry)


@contextmanager
def located(recipe: Recipe, stage_path: Path = ()) -> Iterator[None]:
    """Add the line of the recipe to the address of an error, and prepend that of the stage at `stage_path`."""
    try:
        with prefixed_address(format_path(stage_path)):
            yield
    except RecipeError as error:
        located = recipe.locate(error)
        raise located from located.__cause__


def plans_of(recipe: Recipe, registry: Registry) -> list[Plan]:
    """Resolve the stages of a recipe, and check their names and requirements."""
    plans = [resolve(recipe, registry, number) for number in range(len(recipe.bodies))]
    for plan in plans:
        check_sources(plan.slots, plan.stage_path)
        if any(symbols(plan).values()) or needs_equation(plan.trainer.target):
            check_symbols(plan.slots, len(plan.rewards), plan.stage_path, registry)
            check_refills(plan.slots["filters"], format_path((*plan.stage_path, "algorithm", "filters")))
        check_reward_names(_addressed(plan), [reward.label for reward in plan.rewards])
    no_critic = "no part of the algorithm requires `values`, so there is no critic"
    remedy = "`algorithm: ppo`, or `advantage: gae` with the penalty `value_loss`"
    _check_is_used(recipe, plans, "critic", [plan.critic is not None for plan in plans], no_critic, remedy)
    no_equation = "the trainer of this stage has a loss of its own, which this section does not support"
    for key in dict.fromkeys(key for body in recipe.bodies for key in body if key not in KEYS):
        using = [key in plan.extensions.sections for plan in plans]
        _check_is_used(recipe, plans, key, using, no_equation, "leave it out here")
    generating = [plan.generator is not None for plan in plans]
    _check_is_used(recipe, plans, "generator", generating, "this trainer generates nothing", "leave it out here")
    check_earlier_stages(plans)
    return plans


def symbols(plan: Plan) -> dict[str, Any]:
    """Return the slots of the equation, without prompts and rollout sources."""
    return {slot: choice for slot, choice in plan.slots.items() if slot not in ("sampler", "rollouts")}


def _addressed(plan: Plan) -> Iterator[tuple[Bound, str]]:
    """Yield the parts that may name rewards, each with its address."""
    yield from (
        (bound, where) for _, bound, where in iter_parts(plan.slots, format_path((*plan.stage_path, "algorithm")))
    )
    yield from (
        (bound, format_path((*plan.stage_path, "callbacks", i))) for i, bound in enumerate(plan.extensions.callbacks)
    )


def _check_is_used(
    recipe: Recipe, plans: list[Plan], section: str, using: Sequence[bool], problem: str, hint: str
) -> None:
    """Check that a section has an effect; of a section that stages inherit, at least one of them must use it.

    Args:
        recipe: The recipe.
        plans: Its stages.
        section: A key of a stage.
        using: Per stage, True if the section is used.
        problem: The reason why a stage does not use it.
        hint: How to use it, or to leave it out.
    """
    origin = recipe.origins.get(section)
    for stage_path, body, is_used in zip(recipe.stage_paths, recipe.bodies, using, strict=True):
        where = format_path((*stage_path, section))
        is_inherited = any(using) and origin is not None and recipe.origins.get(where) == origin
        if body.get(section) is not None and not is_used and not is_inherited:
            raise RecipeError(problem, where=where, hint=hint)
