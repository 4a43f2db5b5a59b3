"""Rewards of multi-turn episodes, as one return or per turn; registered by `rewards` and `shapers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from jaxtyping import Float
from pydantic import Field

from rlm_plugins.environment import Episode
from rlm_plugins.lazy import torch

Share = Annotated[float, Field(ge=0, le=1)]


def episode_return(episodes: Sequence[Episode], *, gamma: Share = 1.0) -> list[float]:
    """G = Σₖ γᵏ rₖ over the turns k of an episode: the return of its environment; 0 without turns.

    Sutton and Barto, Reinforcement Learning, eq. 3.8, k counted from 0.

    >>> episode_return([Episode(None, "", turn_rewards=[0.0, 1.0, 2.0])], gamma=0.5)
    [1.0]
    """
    return [_discounted_sum(episode.rewards, gamma) for episode in episodes]


def _discounted_sum(rewards: Sequence[float], gamma: float) -> float:
    return float(sum(gamma**k * reward for k, reward in enumerate(rewards)))


def by_turn(turn_rewards: Float[torch.Tensor, "B T"], *, scale: float = 1.0) -> Float[torch.Tensor, "B T"]:
    """r′ₜ = rₜ + scale · r(turn), on the last token of each turn, for per-token advantages (`gae`, returns).

    To avoid counting these rewards twice, give `episode_return` a ``weight: 0``. Without turns nothing changes.

    >>> by_turn(torch.tensor([[0.0, 1.0, 0.0, 2.0]]), scale=0.5).tolist()
    [[0.0, 0.5, 0.0, 1.0]]
    """
    return scale * turn_rewards
