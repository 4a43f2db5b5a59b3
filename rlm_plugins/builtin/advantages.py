"""Â: advantage estimators (hook ``rlm_advantages``).

An estimator that compares completions returns exactly zero if they are all equal; otherwise it would divide rounding
noise by a tiny standard deviation. (Float32, eight rewards of 0.3: with the eps of TRL, verl, oat and OpenRLHF the
noise becomes an advantage of 3e-4, 0.029, 0.71 and 0.91.)
"""

from __future__ import annotations

from typing import Annotated, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeFloat

from rlm_plugins import hookimpl
from rlm_plugins.builtin.group_advantages import best_margin, gpg, greedy_baseline, optimal_baseline, pass_at_k
from rlm_plugins.builtin.per_reward_advantage import per_reward
from rlm_plugins.builtin.tracked_baseline import TrackedBaseline
from rlm_plugins.builtin.value_estimation import gae
from rlm_plugins.functional.statistics import Groups, Singleton, discounted, nanstd, varies, whiten
from rlm_plugins.lazy import torch

Scale = Literal["group", "batch", "centered_batch", "none"]
Share = Annotated[float, Field(ge=0, le=1)]


def group_relative(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    *,
    scale: Scale = "group",
    unbiased: bool = True,
    eps: NonNegativeFloat = 1e-4,
    singleton: Singleton = "zero",
) -> Float[torch.Tensor, "B"]:
    """Reward standardized within its group (GRPO).

    Âᵢ = (rᵢ − mean_g) / s, with s = std + eps, or 1 for the scale "none".

    `scale` selects the std: the group's (GRPO, arXiv 2402.03300 §4.1); that of all raw rewards of the batch (LitePPO,
    2508.08221); that of all centered rewards (ROLL's variant of LitePPO); or none, the centered reward (Dr. GRPO,
    2503.20783). The paper has no `eps` and does not specify the std: 1e-4 outside the root is TRL's. Libraries divide
    by n − 1 (`unbiased`), not by n. All rewards of a group equal: exactly 0. A group of one: 0, or with `singleton`
    "reward" its reward (verl).

    >>> group_relative(torch.tensor([1.0, 0.0, 0.0, 1.0]), torch.tensor([0, 0, 1, 1]), scale="none").tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    groups = Groups(rewards, group)
    table = groups.table - groups.table.nanmean(1, keepdim=True)
    if scale == "group":
        table = table / (nanstd(groups.table, 1, unbiased=unbiased) + eps)
    centered = groups.flatten_or_zero(table, singleton)
    if scale in ("group", "none"):
        return centered
    scaled_by = rewards if scale == "batch" else centered
    return (centered / (nanstd(scaled_by, 0, unbiased=unbiased) + eps)).where(centered != 0, 0.0)


def leave_one_out(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    *,
    scale: Literal["none", "others", "batch"] = "none",
    eps: NonNegativeFloat = 1e-4,
    singleton: Singleton = "zero",
) -> Float[torch.Tensor, "B"]:
    """Reward minus the mean of the *other* completions of its group: an unbiased baseline (RLOO).

    Âᵢ = rᵢ − 1/(n−1) Σ_{j≠i} rⱼ = n/(n−1) · (rᵢ − mean_g). RLOO, arXiv 2402.14740 eq. 5.

    The scale "others" also divides by the std of the other completions (n − 2 in its denominator), plus `eps`, unless
    those are all equal. That is GRPO as defined in arXiv 2509.04419, and NeMo-RL's default. The scale "batch"
    standardizes once more over the batch (TRL's `normalize_advantages`), which shifts equal completions by the batch
    mean. A group of one has no others: 0, or with `singleton` "reward" its reward (verl). All equal: exactly 0.

    >>> leave_one_out(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0, 0, 0])).tolist()
    [1.0, -0.5, -0.5]
    """
    groups = Groups(rewards, group)
    others = groups.table.nansum(1, keepdim=True) - groups.table
    count = (~groups.table.isnan()).sum(1, keepdim=True) - 1
    advantages = groups.table - others / count
    if scale == "others":
        advantages = advantages / _std_of_others(groups.table, eps)
    flat = groups.flatten_or_zero(advantages, singleton)
    if scale != "batch" or not varies(flat, 0):
        return flat
    return (flat - flat.mean()) / (nanstd(flat, 0) + eps)


def _std_of_others(table: Float[torch.Tensor, "P G"], eps: float) -> Float[torch.Tensor, "P G"]:
    """Return for each entry the std of the rest of its group, plus eps; 1 where the rest does not vary."""
    itself = torch.eye(table.shape[1], dtype=torch.bool, device=table.device)
    others = table.unsqueeze(1).masked_fill(itself, torch.nan)
    return (nanstd(others, 2) + eps).where(varies(others, 2), 1.0).squeeze(2)


def batch_whitened(
    rewards: Float[torch.Tensor, "B"],
    token_rewards: Float[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    gamma: Share = 1.0,
    center_by_group: bool = False,
    unbiased: bool = True,
    eps: NonNegativeFloat = 1e-8,
    masked_tokens: Literal["skip", "discount", "reset"] = "skip",
    singleton: Singleton = "zero",
) -> Float[torch.Tensor, "B T"]:
    """Return whitened over all trained tokens of the batch (REINFORCE++); requires no groups.

    Rₜ = Σₗ γˡ rₜ₊ₗ ;  Âₜ = (Rₜ − mean) / √(var + eps), mean and variance over the mask. REINFORCE++, arXiv
    2501.03262; with `center_by_group` its baseline variant, which subtracts the group's mean first (in a group of one
    its reward, or with `singleton` "reward" nothing: verl). `unbiased`: n − 1 in the variance (verl, TRL), or n
    (OpenRLHF, NeMo-RL).

    Without dense rewards and with γ = 1, R is the completion's reward at each of its tokens. A long completion counts
    once per token. Masked tokens inside a completion: "skip" ignores them (verl), "discount" lets them discount
    (OpenRLHF); "reset" ends the sum there, so that tokens before tool output get no credit for later rewards (SkyRL).
    No spread: exactly 0.

    >>> mask = torch.tensor([[True, True], [True, False]])
    >>> rewards, spread = torch.tensor([1.0, 4.0]), torch.tensor([[0.0, 1.0], [4.0, 0.0]])
    >>> batch_whitened(rewards, spread, torch.tensor([0, 1]), mask).mul(3**0.5).round().tolist()
    [[-1.0, -1.0], [2.0, 0.0]]
    """
    live = torch.ones_like(mask) if masked_tokens == "discount" else mask
    returns = discounted(token_rewards.where(mask, 0.0), gamma, live, carry=masked_tokens != "reset")
    if center_by_group:
        baseline = rewards - group_relative(rewards, group, scale="none", singleton=singleton)
        returns = returns - baseline.unsqueeze(1)
    return whiten(returns, mask, eps=eps, unbiased=unbiased)


@hookimpl
def rlm_advantages() -> dict[str, object]:
    return {
        "group_relative": group_relative,
        "leave_one_out": leave_one_out,
        "batch_whitened": batch_whitened,
        "tracked_baseline": TrackedBaseline,
        "gae": gae,
        "optimal_baseline": optimal_baseline,
        "greedy_baseline": greedy_baseline,
        "gpg": gpg,
        "pass_at_k": pass_at_k,
        "best_margin": best_margin,
        "per_reward": per_reward,
    }
