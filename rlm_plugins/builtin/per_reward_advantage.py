"""Â of several rewards, each standardized within its group before they are summed (GDPO)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat

from rlm_plugins.annotations import RewardName, named
from rlm_plugins.functional.statistics import Groups, Singleton, nanstd, whiten
from rlm_plugins.lazy import torch

CANCELLED = 1e-3
"""Relative size below which a sum of opposing scores is `eps` and rounding noise, not to be scaled up."""


def per_reward(
    named_rewards: dict[str, torch.Tensor],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    weights: Mapping[RewardName, float] | None = None,
    over: Literal["completions", "tokens"] = "completions",
    eps: NonNegativeFloat = 1e-4,
    singleton: Singleton = "zero",
) -> Float[torch.Tensor, "B"] | Float[torch.Tensor, "B T"]:
    """Sum of the rewards standardized separately within the group, standardized over the batch (GDPO).

    Âᵢ = Sᵢ / (std + eps), with Sᵢ = Σₖ weightₖ (rᵢₖ − mean_g rₖ) / (std_g rₖ + eps), whose mean is 0. GDPO, arXiv
    2601.05242: standardizing the sum instead gives different reward combinations the same advantage, and the reward
    with the widest spread dominates the others.

    The rewards are those of the recipe, before its weights and shapers: set `weights` here, by name; the default is 1.
    The std (n − 1) is over the completions of the batch (TRL), or over its trained tokens with eps 1e-8 under the root
    (verl). There the mean is that of tokens, and not 0. A reward that is equal throughout a group, or is None for a
    completion, adds 0; if all do, Â is exactly 0 (over tokens: shifted by the mean, as in `batch_whitened`). It is 0
    everywhere if the scores of the batch cancel out. A group of one adds 0, or with `singleton` "reward" its reward,
    as if its mean were 0 and its std 1 (verl).

    >>> both = {"right": torch.tensor([1.0, 0.0]), "short": torch.tensor([0.0, 9.0])}
    >>> per_reward(both, torch.tensor([0, 0]), torch.ones(2, 1, dtype=torch.bool)).tolist()
    [0.0, 0.0]
    """
    for name in weights or {}:
        named(named_rewards, name, where="advantage: per_reward.weights")
    weighted = [
        (weights or {}).get(name, 1.0) * _standard_score(r, group, eps, singleton) for name, r in named_rewards.items()
    ]
    scores = torch.stack(weighted)
    total = scores.sum(0)
    if total.abs().max() <= CANCELLED * scores.abs().sum(0).max():
        total = torch.zeros_like(total)
    if over == "tokens":
        return whiten(total.unsqueeze(1).expand(mask.shape), mask)
    return (total / (nanstd(total, 0) + eps)).where(total != 0, 0.0)


def _standard_score(
    rewards: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"], eps: float, singleton: Singleton
) -> torch.Tensor:
    """Return the standard score of each completion in its group; 0 if the reward is missing or does not vary."""
    groups = Groups(rewards, group)
    scores = (groups.table - groups.table.nanmean(1, keepdim=True)) / (nanstd(groups.table, 1) + eps)
    scores = groups.flatten_or_zero(scores, singleton)
    return scores.nan_to_num(nan=0.0)
