"""A reward, or the rows of a source, by the name the recipe gives it; and how a knob says that it holds such a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.lazy import torch


@dataclass(frozen=True)
class NameOf:
    """In the annotation of a knob: its text is a name that a recipe gives, so it is checked before anything is loaded.

    Args:
        kind: Of what: ``reward`` or ``source``.
    """

    kind: str


RewardName = Annotated[str, NameOf("reward")]
"""The name of a reward, or its label: ``reward: RewardName | None = None``, ``of: Sequence[RewardName]``."""
SourceName = Annotated[str, NameOf("source")]
"""The name of a rollout source, or ``policy``."""


def named(rewards: Mapping[str, torch.Tensor], name: str, *, where: str) -> torch.Tensor:
    """The reward called `name`, (B,), NaN where it did not apply.

    Args:
        rewards: `Batch.named_rewards`.
        name: The name asked for.
        where: The knob that asks, for the error.

    Raises:
        RecipeError: No reward is called that.
    """
    return _found(rewards, name, "reward", where)


def written_by(sources: Mapping[str, torch.Tensor], name: str, *, where: str) -> torch.Tensor:
    """Which rows the source called `name` wrote, (B,).

    Args:
        sources: `Batch.sources`.
        name: The name asked for.
        where: The knob that asks, for the error.

    Raises:
        RecipeError: No source is called that.
    """
    return _found(sources, name, "source of rows", where)


def _found(there: Mapping[str, torch.Tensor], name: str, kind: str, where: str) -> torch.Tensor:
    if name not in there:
        problem = f"no {kind} is called '{name}'"
        raise RecipeError(problem, where=where, allowed=", ".join(there), hint=nearest(name, there))
    return there[name]
