"""ETTRL: group-relative advantages that the entropy of the completions reshapes."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int

from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.equation.statistics import Groups
from rlm_plugins.lazy import torch
from rlm_plugins.specs import Algorithm


def entropy_reshaped(
    rewards: Float[torch.Tensor, "B"],
    entropy: Float[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
) -> Float[torch.Tensor, "B"]:
    """Compute the group-relative advantage, larger for certain completions and smaller for uncertain ones.

    Âᵢ = Yᵢ (rᵢ − mean_g) / (std_g + 10⁻⁴), Yᵢ = 1 + (H̄_g − Hᵢ) / H̄_g. Hᵢ is the mean entropy of the tokens of
    completion i before the update, and H̄_g the mean of H over its group. ETTRL, arXiv 2508.11356, Adv-Res of its
    entropy-based advantage reshaping.

    Y is 1 where all completions are equally uncertain, and the mean of Y over a group is 1. A completion more than
    twice as uncertain as its group has Y < 0: its advantage changes sign, as in the formula. A group without entropy
    has Y = 1; all rewards of a group equal: exactly 0. A completion without trained tokens counts as H = 0.

    >>> entropy = torch.tensor([[0.1, 0.1], [0.3, 0.3]])
    >>> mask, group = torch.ones(2, 2).bool(), torch.zeros(2).long()
    >>> entropy_reshaped(torch.tensor([1.0, 0.0]), entropy, group, mask).div(0.70700).round(decimals=2).tolist()
    [1.5, -0.5]
    """
    advantages = group_relative(rewards, group)
    groups = Groups(entropy.where(mask, 0.0).sum(1) / mask.sum(1).clamp(min=1), group)
    mean = groups.table.nanmean(1, keepdim=True)
    factor = groups.flatten(torch.where(mean > 0, 2 - groups.table / mean, 1.0))
    return factor.to(advantages.dtype) * advantages


ettrl = Algorithm(
    about="Test-time reinforcement learning on majority votes; certain completions weigh more than uncertain ones.",
    source="ETTRL, arXiv 2508.11356: entropy-based advantage reshaping (Adv-Res). Its formulas were read in summaries",
    pitfalls="It needs `rewards: [majority_vote]`. Its rollouts (ETMR) are the source `entropy_tree` of rlm-process: "
    "`rollouts: [{name: entropy_tree, by: entropy, trunks: 12, forks: 4, branches: 2}]` with 60 completions is the "
    "paper's M = 12 trees, N = 2 points with B = 2 branches each, M (1 + N B) votes. Votes of one tree are not "
    "independent. Reshaping trusts certainty: where the policy is certain of wrong answers it amplifies them.",
    names={"advantage": "Â^res = Y Â"},
    advantage="entropy_reshaped",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="sequence_mean",
)
