"""Checks of rewards and data sets that are the result of an earlier stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.recipe.paths import spell
from rlm_plugins.recipe.resolve import Plan
from rlm_plugins.registry.protocols import Produces, product_of


def check_earlier_stages(plans: Sequence[Plan]) -> None:
    """Check that the knob `stage` of a reward or data set names an earlier stage with the result that it requires.

    Args:
        plans: The stages of a recipe, in order.

    Raises:
        RecipeError: It names the stages that would fit.
    """
    for number, plan in enumerate(plans):
        _check_successes(plans[:number], plan)
        for place, reward in enumerate(plan.rewards):
            name, wanted = reward.part.knobs.get("stage"), _wanted(reward.part.target)
            if name is None or wanted is None:
                continue
            fit = {title for p in plans[:number] if _product(p) == wanted for title in (p.name, p.name[3:])}
            if name not in fit:
                exists = name in {title for p in plans for title in (p.name, p.name[3:])}
                problem = f"the stage '{name}' " + (
                    f"produces no {wanted} before this one" if exists else "does not exist"
                )
                raise RecipeError(
                    problem,
                    where=spell((*plan.place, "rewards", place, "stage")),
                    allowed=", ".join(sorted(title for title in fit if not title[:2].isdigit())) or "(none)",
                    hint=nearest(name, fit) or f"add a stage before it with `algorithm: {wanted}`, or set `path`",
                )


def _check_successes(earlier: Sequence[Plan], plan: Plan) -> None:
    """Check that the stage whose successes are the data set keeps them."""
    if plan.environment.part.full_name != "builtin/successes":
        return
    name = plan.environment.knobs["stage"]
    keeping = [p for p in earlier if any(callback.part.name == "keep_successes" for callback in p.callbacks)]
    fit = {title for p in keeping for title in (p.name, p.name[3:])}
    if name not in fit:
        raise RecipeError(
            f"no stage '{name}' before this one keeps its successes",
            where=spell((*plan.place, "environment", "stage")),
            allowed=", ".join(sorted(title for title in fit if not title[:2].isdigit())) or "(none)",
            hint=nearest(name, fit) or f"add `callbacks: [keep_successes]` to the stage '{name}'",
        )


def _product(plan: Plan) -> str:
    return product_of(plan.trainer.target)


def _wanted(reward: Any) -> str | None:
    return reward.produces if isinstance(reward, Produces) else None
