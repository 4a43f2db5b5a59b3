"""Â: how much better a row did than expected (hook ``rlm_advantages``).

An estimator that compares rows returns exactly zero for rows that are all equal: dividing rounding noise by a tiny
standard deviation is not a lesson. (Float32, eight rewards of 0.3: with the eps of TRL, verl, oat and OpenRLHF the
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

Scale = Literal["group", "batch", "centred_batch", "none"]
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
    """The reward, seen from the mean of its group and measured in standard deviations.

    Âᵢ = (rᵢ − mean_g) / s, with s = std + eps, or 1 for the scale "none".

    `scale` says whose std: the group's (GRPO, arXiv 2402.03300 §4.1), that of all raw rewards of the batch (LitePPO,
    2508.08221), that of all centred rewards (ROLL's other LitePPO), or none, the centred reward (Dr. GRPO,
    2503.20783). The paper has no `eps` and does not say which std: 1e-4 outside the root is TRL's, and n − 1
    (`unbiased`) everybody's; without it n, the std of the group as a population. All rewards of a group equal: exactly
    0. A group of one: 0, or with `singleton` "reward" its reward (verl).

    >>> group_relative(torch.tensor([1.0, 0.0, 0.0, 1.0]), torch.tensor([0, 0, 1, 1]), scale="none").tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    groups = Groups(rewards, group)
    cells = groups.table - groups.table.nanmean(1, keepdim=True)
    if scale == "group":
        cells = cells / (nanstd(groups.table, 1, unbiased=unbiased) + eps)
    centred = groups.flatten_or_zero(cells, singleton)
    if scale in ("group", "none"):
        return centred
    measured = rewards if scale == "batch" else centred
    return (centred / (nanstd(measured, 0, unbiased=unbiased) + eps)).where(centred != 0, 0.0)


def leave_one_out(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    *,
    scale: Literal["none", "others", "batch"] = "none",
    eps: NonNegativeFloat = 1e-4,
    singleton: Singleton = "zero",
) -> Float[torch.Tensor, "B"]:
    """The reward, seen from the mean of the *other* rows of its group: an unbiased baseline.

    Âᵢ = rᵢ − 1/(n−1) Σ_{j≠i} rⱼ = n/(n−1) · (rᵢ − mean_g). RLOO, arXiv 2402.14740 eq. 5.

    With the scale "others" also divided by the std of the other rows (n − 2 in its denominator), plus `eps`; where
    those are all equal it is not divided. That is GRPO as arXiv 2509.04419 writes it, and NeMo-RL's default. With the
    scale "batch" it is standardised once more over the batch (TRL's `normalize_advantages`), and equal rows move with
    its mean. A group of one has no others: 0, or with `singleton` "reward" its reward (verl). All equal: exactly 0.

    >>> leave_one_out(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0, 0, 0])).tolist()
    [1.0, -0.5, -0.5]
    """
    groups = Groups(rewards, group)
    others = groups.table.nansum(1, keepdim=True) - groups.table
    count = (~groups.table.isnan()).sum(1, keepdim=True) - 1
    advantages = groups.table - others / count
    if scale == "others":
        advantages = advantages / _std_of_others(groups.table, eps)
    settled = groups.flatten_or_zero(advantages, singleton)
    if scale != "batch" or not varies(settled, 0):
        return settled
    return (settled - settled.mean()) / (nanstd(settled, 0) + eps)


def _std_of_others(cells: Float[torch.Tensor, "P G"], eps: float) -> Float[torch.Tensor, "P G"]:
    """For each cell the std of the rest of its line, plus eps; 1 where the rest does not vary."""
    itself = torch.eye(cells.shape[1], dtype=torch.bool, device=cells.device)
    others = cells.unsqueeze(1).masked_fill(itself, torch.nan)
    return (nanstd(others, 2) + eps).where(varies(others, 2), 1.0).squeeze(2)


def batch_whitened(
    rewards: Float[torch.Tensor, "B"],
    token_rewards: Float[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    gamma: Share = 1.0,
    centre_by_group: bool = False,
    unbiased: bool = True,
    eps: NonNegativeFloat = 1e-8,
    masked_tokens: Literal["skip", "through", "forget"] = "skip",
    singleton: Singleton = "zero",
) -> Float[torch.Tensor, "B T"]:
    """The reward still to come, whitened over every trained token of the batch; no group is needed.

    Rₜ = Σₗ γˡ rₜ₊ₗ ;  Âₜ = (Rₜ − mean) / √(var + eps), mean and variance over the mask. REINFORCE++, arXiv
    2501.03262; with `centre_by_group` its baseline variant, which takes the group's mean off first (from a group of
    one its reward, or with `singleton` "reward" nothing: verl). `unbiased`: n − 1 in the variance (verl, TRL), or n
    (OpenRLHF, NeMo-RL).

    Without dense rewards and with γ = 1, R is the row's reward at each of its tokens. A long row counts once per
    token. Masked tokens inside a row: "skip" steps over them (verl), "through" lets them discount (OpenRLHF), "forget"
    ends the sum there, so that tokens before tool output are paid nothing for what follows (SkyRL). No spread: exactly
    0.

    >>> mask = torch.tensor([[True, True], [True, False]])
    >>> rewards, spread = torch.tensor([1.0, 4.0]), torch.tensor([[0.0, 1.0], [4.0, 0.0]])
    >>> batch_whitened(rewards, spread, torch.tensor([0, 1]), mask).mul(3**0.5).round().tolist()
    [[-1.0, -1.0], [2.0, 0.0]]
    """
    live = torch.ones_like(mask) if masked_tokens == "through" else mask
    to_come = discounted(token_rewards.where(mask, 0.0), gamma, live, carry=masked_tokens != "forget")
    if centre_by_group:
        baseline = rewards - group_relative(rewards, group, scale="none", singleton=singleton)
        to_come = to_come - baseline.unsqueeze(1)
    return whiten(to_come, mask, eps=eps, unbiased=unbiased)


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
