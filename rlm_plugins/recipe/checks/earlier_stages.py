"""Checks of rewards and data sets that are the result of an earlier stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.recipe.paths import format_path
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
        for index, reward in enumerate(plan.rewards):
            name, product = reward.part.knobs.get("stage"), _required_product(reward.part.target)
            if name is None or product is None:
                continue
            valid = _titles(p for p in plans[:number] if product_of(p.trainer.target) == product)
            if name not in valid:
                exists = name in _titles(plans)
                problem = f"the stage '{name}' " + (
                    f"produces no {product} before this one" if exists else "does not exist"
                )
                raise RecipeError(
                    problem,
                    where=format_path((*plan.stage_path, "rewards", index, "stage")),
                    allowed=", ".join(sorted(title for title in valid if not title[:2].isdigit())) or "(none)",
                    hint=nearest(name, valid) or f"add a stage before it with `algorithm: {product}`, or set `path`",
                )


def _check_successes(earlier: Sequence[Plan], plan: Plan) -> None:
    """Check that the stage whose successes are the data set keeps them."""
    if plan.environment.part.full_name != "builtin/successes":
        return
    name = plan.environment.knobs["stage"]
    valid = _titles(
        p for p in earlier if "keep_successes" in [callback.part.name for callback in p.extensions.callbacks]
    )
    if name not in valid:
        raise RecipeError(
            f"no stage '{name}' before this one keeps its successes",
            where=format_path((*plan.stage_path, "environment", "stage")),
            allowed=", ".join(sorted(title for title in valid if not title[:2].isdigit())) or "(none)",
            hint=nearest(name, valid) or f"add `callbacks: [keep_successes]` to the stage '{name}'",
        )


def _titles(plans: Iterable[Plan]) -> set[str]:
    """Return the names by which a recipe can refer to stages: with and without the number."""
    names = [plan.name for plan in plans]
    return {*names, *(name[3:] for name in names)}


def _required_product(reward: Any) -> str | None:
    return reward.produces if isinstance(reward, Produces) else None
