"""Whether a reward that is learned in a stage of the same recipe finds that stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.recipe.paths import spell
from rlm_plugins.recipe.resolve import Plan
from rlm_plugins.registry.protocols import Produces, product_of


def check_earlier_stages(plans: Sequence[Plan]) -> None:
    """Whether the knob `stage` of a reward names a stage before its own, and one that leaves what the reward reads.

    Args:
        plans: The stages of a recipe, in order.

    Raises:
        RecipeError: It names the stages that would do.
    """
    for number, plan in enumerate(plans):
        for place, reward in enumerate(plan.rewards):
            name, wanted = reward.part.knobs.get("stage"), _wanted(reward.part.target)
            if name is None or wanted is None:
                continue
            fit = {title for p in plans[:number] if _leaves(p) == wanted for title in (p.name, p.name[3:])}
            if name not in fit:
                there = name in {title for p in plans for title in (p.name, p.name[3:])}
                problem = f"the stage '{name}' " + (f"leaves no {wanted} before this one" if there else "is not there")
                raise RecipeError(
                    problem,
                    where=spell((*plan.place, "rewards", place, "stage")),
                    allowed=", ".join(sorted(title for title in fit if not title[:2].isdigit())) or "(none)",
                    hint=nearest(name, fit) or f"a stage before it with `algorithm: {wanted}`; or say `path`",
                )


def _leaves(plan: Plan) -> str:
    return product_of(plan.engine.target)


def _wanted(reward: Any) -> str | None:
    return reward.produces if isinstance(reward, Produces) else None
