"""Names of rewards and rollout sources in knobs, and the lookup of data by such a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.lazy import torch


@dataclass(frozen=True)
class NameOf:
    """Mark a knob as the name of a reward or a source, to be validated before anything is loaded.

    Args:
        kind: ``reward`` or ``source``.
    """

    kind: str


RewardName = Annotated[str, NameOf("reward")]
"""The name of a reward, or its label: ``reward: RewardName | None = None``, ``of: Sequence[RewardName]``."""
SourceName = Annotated[str, NameOf("source")]
"""The name of a rollout source, or ``policy``."""


def named(rewards: Mapping[str, torch.Tensor], name: str, *, where: str) -> torch.Tensor:
    """Return the reward called `name`, (B,); NaN: it did not apply.

    Args:
        rewards: `Batch.named_rewards`.
        name: The name.
        where: The knob, for errors.

    Raises:
        RecipeError: Unknown name.
    """
    return _lookup(rewards, name, "reward", where)


def completions_of(sources: Mapping[str, torch.Tensor], name: str, *, where: str) -> torch.Tensor:
    """Return True for each completion that the source called `name` generated, (B,).

    Args:
        sources: `Batch.sources`.
        name: The name.
        where: The knob, for errors.

    Raises:
        RecipeError: Unknown name.
    """
    return _lookup(sources, name, "source", where)


def _lookup(values: Mapping[str, torch.Tensor], name: str, kind: str, where: str) -> torch.Tensor:
    if name not in values:
        problem = f"unknown {kind} '{name}'"
        raise RecipeError(problem, where=where, allowed=", ".join(values), hint=nearest(name, values))
    return values[name]
