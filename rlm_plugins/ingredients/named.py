"""A reward, or the rows of a source, by the name the recipe gives it."""

from __future__ import annotations

from collections.abc import Mapping

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.lazy import torch


def named(rewards: Mapping[str, torch.Tensor], name: str, *, where: str) -> torch.Tensor:
    """The reward called `name`, (B,), NaN where it did not apply.

    Args:
        rewards: `Batch.named_rewards`.
        name: The name asked for.
        where: The knob that asks, for the error.

    Raises:
        RecipeError: No reward is called that.
    """
    if name not in rewards:
        raise RecipeError(
            f"no reward is called '{name}'", where=where, allowed=", ".join(rewards), hint=nearest(name, rewards)
        )
    return rewards[name]


def written_by(sources: Mapping[str, torch.Tensor], name: str, *, where: str) -> torch.Tensor:
    """Which rows the source called `name` wrote, (B,).

    Args:
        sources: `Batch.sources`.
        name: The name asked for.
        where: The knob that asks, for the error.

    Raises:
        RecipeError: No source is called that.
    """
    if name not in sources:
        raise RecipeError(
            f"no source of rows is called '{name}'",
            where=where,
            allowed=", ".join(sources),
            hint=nearest(name, sources),
        )
    return sources[name]
