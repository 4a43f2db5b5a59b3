"""The stages of a recipe, resolved, with names, knobs and requirements checked; nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.checks.address import stands_at
from rlm_plugins.recipe.checks.data_needs import check_symbols, standing
from rlm_plugins.recipe.checks.earlier_stages import check_earlier_stages
from rlm_plugins.recipe.checks.group_size import check_refills
from rlm_plugins.recipe.checks.names import check_reward_names
from rlm_plugins.recipe.checks.rollouts import check_sources
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.paths import Path, spell
from rlm_plugins.recipe.resolve import Plan, resolve
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import needs_equation


def check_names(recipe: Recipe, registry: Registry) -> None:
    """Check names, knobs and requirements of all stages, before torch is imported."""
    registry.require_sound()
    with located(recipe):
        plans_of(recipe, registry)


@contextmanager
def located(recipe: Recipe, place: Path = ()) -> Iterator[None]:
    """Add the line of the recipe to the address of an error, and the stage at `place` before it."""
    try:
        with stands_at(spell(place)):
            yield
    except RecipeError as error:
        located = recipe.locate(error)
        raise located from located.__cause__


def plans_of(recipe: Recipe, registry: Registry) -> list[Plan]:
    """Return the stages of a recipe, resolved, with names and requirements checked."""
    plans = [resolve(recipe, registry, number) for number in range(len(recipe.bodies))]
    for plan in plans:
        check_sources(plan.slots, plan.place)
        if any(symbols(plan).values()) or needs_equation(plan.trainer.target):
            check_symbols(plan.slots, len(plan.rewards), plan.place, registry)
            check_refills(plan.slots["filters"], spell((*plan.place, "algorithm", "filters")))
        check_reward_names(_addressed(plan), [reward.label for reward in plan.rewards])
    no_critic = "no part of the algorithm requires `values`, so there is no critic"
    remedy = "`algorithm: ppo`, or `advantage: gae` with the penalty `value_loss`"
    _check_is_used(recipe, plans, "critic", [plan.critic is not None for plan in plans], no_critic, remedy)
    own = "the trainer of this stage has a loss of its own, and no optimizations of ours"
    equations = [plan.slots.get("policy_loss") is not None for plan in plans]
    _check_is_used(recipe, plans, "speed", equations, own, "leave it out here")
    generating = [plan.generator is not None for plan in plans]
    _check_is_used(recipe, plans, "generator", generating, "this trainer generates nothing", "leave it out here")
    check_earlier_stages(plans)
    return plans


def symbols(plan: Plan) -> dict[str, Any]:
    """Return the slots of the equation, without prompts and rollout sources."""
    return {slot: chosen for slot, chosen in plan.slots.items() if slot not in ("sampler", "rollouts")}


def _addressed(plan: Plan) -> Iterator[tuple[Bound, str]]:
    """Yield the parts that may name rewards, each with its address."""
    yield from ((bound, where) for _, bound, where in standing(plan.slots, spell((*plan.place, "algorithm"))))
    yield from ((bound, spell((*plan.place, "callbacks", i))) for i, bound in enumerate(plan.callbacks))


def _check_is_used(
    recipe: Recipe, plans: list[Plan], section: str, using: Sequence[bool], problem: str, hint: str
) -> None:
    """Check that a section has an effect: of what stages share, one of them must use it.

    Args:
        recipe: The recipe.
        plans: Its stages.
        section: A key of a stage.
        using: Per stage, True if it is used.
        problem: Why a stage does not use it.
        hint: What would use it.
    """
    origin = recipe.origins.get(section)
    for place, body, is_used in zip(recipe.places, recipe.bodies, using, strict=True):
        where = spell((*place, section))
        shared = any(using) and origin is not None and recipe.origins.get(where) == origin
        if body.get(section) is not None and not is_used and not shared:
            raise RecipeError(problem, where=where, hint=hint)
