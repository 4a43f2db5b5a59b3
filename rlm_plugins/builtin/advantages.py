"""Â: advantage estimators (hook ``rlm_advantages``).

An estimator that compares completions returns exactly zero if they are all equal; otherwise it would divide rounding
noise by a tiny standard deviation. (Float32, eight rewards of 0.3: with the eps of TRL, verl, oat and OpenRLHF the
noise becomes an advantage of 3e-4, 0.029, 0.71 and 0.91.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_plugins import hookimpl
from rlm_plugins.equation.knobs import RewardName, Share, named
from rlm_plugins.equation.statistics import Groups, Singleton, discounted, nanstd, next_live, varies, whiten
from rlm_plugins.lazy import torch

Scale = Literal["group", "batch", "centered_batch", "none"]


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

    Âᵢ = a / s, with s = {scale group → std_g r + eps; batch → std r + eps; centered_batch → std a + eps; none → 1} and
    a = rᵢ − mean_g r.

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

    Âᵢ = {scale none → a; others → a / s; batch → (a − mean a) / (std a + eps)}, with s = 1 where std_others r ≤ 0, else
    std_others r + eps and a = rᵢ − mean_others r. RLOO, arXiv 2402.14740 eq. 5; a = n/(n−1) · (rᵢ − mean_g r).

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


def gae(
    token_rewards: Float[torch.Tensor, "B T"],
    values: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    gamma: Share = 1.0,
    lam: Share = 0.95,
    lam_critic: Share | None = None,
    by_length: PositiveFloat | None = None,
    whitened: bool = True,
    unbiased: bool = True,
    masked_tokens: Literal["skip", "discount"] = "skip",
) -> tuple[Float[torch.Tensor, "B T"], Float[torch.Tensor, "B T"]]:
    """Generalized advantage estimation: the exponentially weighted average of n-step TD errors.

    Âₜ = {whitened true → (aₜ − mean aₜ) / √(var aₜ + 1e-8); false → aₜ}, with aₜ = Σₗ (γ · Λ)ˡ δₜ₊ₗ, δₜ = rₜ + γ Vₜ₊₁ −
    Vₜ and Λ = {by_length null → lam; else → max(1 − 1/(by_length nᵢ), 0)}. V is 0 after the last token. arXiv
    1506.02438 eq. 16; whitened over the mask (PPO practice; `unbiased`: n − 1 in the variance, verl, or n, OpenRLHF and
    ORZ). Returns the pair (advantages, returns); Rₜ = aₜ + Vₜ.

    `lam_critic` (default: `lam`) is the λ of the returns only. λ = 1 trains the critic on Monte-Carlo returns, whatever
    the λ of the policy (decoupled GAE, VC-PPO, 2503.01491). `by_length` α takes λᵢ = 1 − 1/(α nᵢ), at least 0, in place
    of `lam`, with nᵢ the trained tokens of the completion: a longer horizon for long completions (VAPO, 2504.05118).

    Masked tokens inside a completion (tool output): "skip" ignores them (verl, NeMo-RL), "discount" counts them
    as tokens of value and reward 0 (OpenRLHF, ORZ). λ = 1, γ = 1: Âₜ = Σₗ rₜ₊ₗ − Vₜ.

    >>> rewards, values = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.5]])
    >>> gae(rewards, values, torch.ones(1, 2, dtype=torch.bool), lam=1.0, whitened=False)[0].tolist()
    [[0.5, 0.5]]
    """
    live = mask if masked_tokens == "skip" else torch.ones_like(mask)
    rewards, values = token_rewards.where(mask, 0.0), values.where(mask, 0.0)
    td_errors = rewards + gamma * next_live(values, live) - values
    decay = lam if by_length is None else (1 - 1 / (by_length * mask.sum(1)).to(values.dtype)).clamp(min=0.0)
    advantages = discounted(td_errors, gamma * decay, live).where(mask, 0.0)
    critic_advantages = advantages
    if lam_critic is not None:
        critic_advantages = discounted(td_errors, gamma * lam_critic, live).where(mask, 0.0)
    return whiten(advantages, mask, unbiased=unbiased) if whitened else advantages, critic_advantages + values


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

    Âᵢ = S / (std S + eps), with S = Σₖ (weightₖ (rₖ − mean_g rₖ) / (std_g rₖ + eps)). Its mean is 0. GDPO, arXiv
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


@hookimpl
def rlm_advantages() -> dict[str, object]:
    return {"group_relative": group_relative, "leave_one_out": leave_one_out, "gae": gae, "per_reward": per_reward}
