"""Â of several rewards: each compared by itself before they are added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat

from rlm_plugins.annotations import RewardName, named
from rlm_plugins.functional.statistics import Groups, nanstd, whiten
from rlm_plugins.lazy import torch

CANCELLED = 1e-3
"""Rewards that pull in opposite directions leave a rest of this size: `eps` and rounding, no lesson to be scaled up."""


def per_reward(
    named_rewards: dict[str, torch.Tensor],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    weights: Mapping[RewardName, float] | None = None,
    over: Literal["rows", "tokens"] = "rows",
    eps: NonNegativeFloat = 1e-4,
) -> Float[torch.Tensor, "B"] | Float[torch.Tensor, "B T"]:
    """Each reward is compared in its group by itself; the scores are added up and standardised over the batch.

    Âᵢ = Sᵢ / (std + eps), with Sᵢ = Σₖ weightₖ (rᵢₖ − mean_g rₖ) / (std_g rₖ + eps), whose mean is 0. GDPO, arXiv
    2601.05242: where sums are compared, better in two things scores no higher than better in one, and the reward with
    the widest spread drowns the others.

    The rewards are those of the recipe, before its weights and shapers: say `weights` here, by name, 1 where nothing
    is said. The std (n − 1) is over the rows of the batch (TRL), or over its trained tokens with eps 1e-8 under the
    root (verl), where the mean is that of tokens, and not 0. A reward that is equal throughout a group, or did not
    score a row, adds 0; where all do, Â is exactly 0 (over tokens: moved by the mean, as in `batch_whitened`). It is 0
    everywhere when the scores of the whole batch cancel out.

    >>> both = {"right": torch.tensor([1.0, 0.0]), "short": torch.tensor([0.0, 9.0])}
    >>> per_reward(both, torch.tensor([0, 0]), torch.ones(2, 1, dtype=torch.bool)).tolist()
    [0.0, 0.0]
    """
    for name in weights or {}:
        named(named_rewards, name, where="advantage: per_reward.weights")
    each = [(weights or {}).get(name, 1.0) * _standard(r, group, eps) for name, r in named_rewards.items()]
    scores = torch.stack(each)
    total = scores.sum(0)
    if total.abs().max() <= CANCELLED * scores.abs().sum(0).max():
        total = torch.zeros_like(total)
    if over == "tokens":
        return whiten(total.unsqueeze(1).expand(mask.shape), mask)
    return (total / (nanstd(total, 0) + eps)).where(total != 0, 0.0)


def _standard(rewards: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"], eps: float) -> torch.Tensor:
    """The standard score of each row in its group; 0 where the reward did not apply, or does not vary."""
    groups = Groups(rewards, group)
    scores = (groups.table - groups.table.nanmean(1, keepdim=True)) / (nanstd(groups.table, 1) + eps)
    return groups.flatten(scores.where(groups.has_spread(), 0.0)).nan_to_num(nan=0.0)
