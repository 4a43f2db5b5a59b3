"""Â of a group or a batch: REINFORCE++, baselines, GPG, pass@k, best-of-k margin, MaxRL, the signed reward, roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat, PositiveInt

from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.equation.knobs import RewardName, Share, SourceName, completions_of, named
from rlm_plugins.equation.statistics import Groups, Singleton, discounted, nanstd, varies, whiten
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.lazy import torch


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

    Âₜ = (Rₜ − mean Rₜ) / √(var Rₜ + eps), with Rₜ = {center_by_group true → Σₗ (γ)ˡ rₜ₊ₗ − mean_g r; false → Σₗ (γ)ˡ
    rₜ₊ₗ}: mean and variance are over the mask. REINFORCE++, arXiv 2501.03262; with `center_by_group` its baseline
    variant, which subtracts the group's mean first (in a group of one its reward, or with `singleton` "reward" nothing:
    verl). `unbiased`: n − 1 in the variance (verl, TRL), or n (OpenRLHF, NeMo-RL).

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


def optimal_baseline(
    rewards: Float[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    *,
    singleton: Singleton = "zero",
) -> Float[torch.Tensor, "B"]:
    """Reward minus the length-weighted mean of its group: the baseline of minimum variance (OPO).

    Âᵢ = rᵢ − Σⱼ nⱼ rⱼ / Σⱼ nⱼ: sums over the group, n the trained tokens of a completion. OPO, arXiv 2505.23585.

    The optimal weight of a completion is the squared norm of its gradient; the paper assumes that it grows with the
    length, as for a log-probability summed over tokens. All rewards equal, or a group without a token: exactly 0. A
    group of one: 0, or with `singleton` "reward" its reward (verl).

    >>> mask = torch.tensor([[True, True, True], [True, False, False]])
    >>> optimal_baseline(torch.tensor([1.0, 0.0]), mask, torch.tensor([0, 0])).tolist()
    [0.25, -0.75]
    """
    lengths = mask.sum(1).to(rewards.dtype)
    groups = Groups(rewards, group)
    tokens = Groups(lengths, group).table.nansum(1, keepdim=True)
    baseline = Groups(rewards * lengths, group).table.nansum(1, keepdim=True) / tokens
    return groups.flatten_or_zero((groups.table - baseline).where(tokens > 0, 0.0), singleton)


def greedy_baseline(
    rewards: Float[torch.Tensor, "B"],
    token_rewards: Float[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    sources: dict[str, torch.Tensor],
    *,
    source: SourceName = "greedy",
) -> Float[torch.Tensor, "B T"]:
    """Return minus the reward of the greedy completion of the same prompt (ReMax).

    Âₜ = Σₗ rₜ₊ₗ − r(greedy): the sum of future rewards. ReMax, arXiv 2310.10505; if no shaper adds a dense reward it is
    rᵢ − r(greedy) on every token.

    `source` is the rollout source of the greedy completion; of several their mean counts. They get 0 themselves, and
    so does a group without one. All rewards of a group equal: exactly 0.

    >>> sources = {"greedy": torch.tensor([False, False, True])}
    >>> rewards, mask = torch.tensor([1.0, 0.0, 0.25]), torch.tensor([[True], [True], [False]])
    >>> greedy_baseline(rewards, rewards.unsqueeze(1) * mask, torch.zeros(3).long(), mask, sources).tolist()
    [[0.75], [-0.25], [0.0]]
    """
    greedy = completions_of(sources, source, where="advantage: greedy_baseline.source")
    baseline = Groups(rewards.where(greedy, torch.nan), group)
    mean = baseline.flatten(baseline.table.nanmean(1, keepdim=True)).unsqueeze(1)
    groups = Groups(rewards, group)
    compared = groups.flatten(groups.has_spread()) & ~greedy
    advantages = (discounted(token_rewards, 1.0, mask) - mean).nan_to_num(nan=0.0)
    return advantages.where(mask & compared.unsqueeze(1), 0.0)


def gpg(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    *,
    counted: Literal["spread", "nonzero_rewards"] = "spread",
    singleton: Singleton = "zero",
) -> Float[torch.Tensor, "B"]:
    """Centered reward, rescaled for the completions of the batch that have no gradient (GPG).

    Âᵢ = α (rᵢ − mean_g r), with α = B / (B − M): M completions are in groups whose rewards are all equal. GPG, arXiv
    2504.02546: their gradient is zero, and averaging over them would shrink that of the others.

    `counted` selects the completions in B − M: those of groups with spread, or those whose reward is not 0, as in verl.
    The latter counts the right completions of all-right groups, and no wrong ones. After the filter
    `nonzero_std` M is 0 and α is 1. All rewards of a group equal: exactly 0. A group of one: 0, or with `singleton`
    "reward" α times its reward (verl).

    >>> gpg(torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1])).tolist()
    [1.0, -1.0, 0.0, 0.0]
    """
    groups = Groups(rewards, group)
    informative = groups.flatten(groups.has_spread()) if counted == "spread" else rewards != 0
    alpha = len(rewards) / informative.sum().clamp(min=1).to(rewards.dtype)
    centered = groups.table - groups.table.nanmean(1, keepdim=True)
    return alpha * groups.flatten_or_zero(centered, singleton)


def pass_at_k(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    *,
    k: PositiveInt = 4,
    threshold: float | None = None,
) -> Float[torch.Tensor, "B"]:
    """Contribution of a completion to the probability that one of k samples is right (pass@k).

    Âᵢ = (1 − R) / s where r ≥ 1, else (1 − R − Q) / s, with s = √(R (1 − R)), R = 1 − C(w, k) / C(G, k) and Q = C(w −
    1, k − 1) / C(G − 1, k − 1). R is the share of all subsets of k out of G completions that contain a right one, w the
    wrong ones; Q that of the subsets with a given wrong completion in which all others are wrong too. Pass@k Training,
    arXiv 2508.10751. With k = 1 it is the standard score of the group (std with n).

    Rewards must be 0 or 1; with a `threshold` a completion is right from that reward on. No right one, or so many that
    every subset has one (always so if n ≤ k): exactly 0, so a group must be larger than k.

    >>> pass_at_k(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 0, 0, 0]), k=2).mul(3).round().tolist()
    [3.0, -1.0, -1.0, -1.0]
    """
    correct = is_correct(rewards, threshold, "pass_at_k")
    groups = Groups(correct, group)
    sizes = (~groups.table.isnan()).sum(1, keepdim=True)
    wrong = sizes - groups.table.nansum(1, keepdim=True)
    all_wrong = _subset_probability(wrong, sizes, k)
    others_wrong = _subset_probability(wrong - 1, sizes - 1, k - 1)
    scale = ((1 - all_wrong) * all_wrong).sqrt()
    advantages = (all_wrong - others_wrong * (1 - groups.table)) / scale
    return groups.flatten(advantages.where(scale > 0, 0.0))


def best_margin(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    *,
    scale: Literal["group", "none"] = "group",
    eps: NonNegativeFloat = 1e-6,
) -> Float[torch.Tensor, "B"]:
    """Margin of the best completion over the second best; all others get 0 (best-of-k optimization).

    Âᵢ = {scale group → (r₁ − r₂) / (std_g r + eps); none → r₁ − r₂} where r ≥ r₁, else 0: r₁ and r₂ are the largest.
    arXiv 2503.19595, where k is the size of the group; verl calls it grpo_passk. Std with n − 1; the scale "none"
    leaves it out.

    Two best completions, all rewards equal, a group of one: exactly 0. Advantages are never negative.

    >>> best_margin(torch.tensor([1.0, 0.25, 0.5]), torch.tensor([0, 0, 0]), scale="none").tolist()
    [0.5, 0.0, 0.0]
    """
    groups = Groups(rewards, group)
    ranked = groups.table.nan_to_num(nan=-torch.inf).sort(1, descending=True).values
    margin = (groups.table - ranked[:, 1:2]).clamp(min=0) if ranked.shape[1] > 1 else groups.table
    if scale == "group":
        margin = margin / (nanstd(groups.table, 1) + eps)
    return groups.flatten_or_zero(margin)


def max_rl(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    *,
    eps: NonNegativeFloat = 0.0,
    negative: Literal["refuse", "zero"] = "refuse",
    singleton: Singleton = "zero",
) -> Float[torch.Tensor, "B"]:
    """Reward minus the mean of its group, relative to that mean: rare successes weigh more (MaxRL).

    Âᵢ = (rᵢ − mean_g r) / (mean_g r + eps). MaxRL, arXiv 2602.02710. For rewards of 0 and 1 its expectation is the
    gradient of Σₖ pass@k / k, over k less than the size of the group. In large groups it nears that of log p, the
    likelihood of a right answer.

    Rewards must not be negative: a mean below 0 would turn the sign. With `negative` "zero" they may be, and a group
    whose mean is not above 0 has 0 (prime-rl). SkyRL has `eps` 1e-6 and the `singleton` "reward". All rewards of a
    group equal: exactly 0.

    >>> max_rl(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 0, 0, 0])).tolist()
    [3.0, -1.0, -1.0, -1.0]
    """
    if negative == "refuse" and (rewards < 0).any():
        hint = "`shapers: [{name: bounded, low: 0}]`, or `negative: zero`, or another advantage"
        raise PartError(
            f"got the reward {rewards.min():g}", where="advantage: max_rl", allowed="rewards of 0 or more", hint=hint
        )
    groups = Groups(rewards, group)
    mean = groups.table.nanmean(1, keepdim=True)
    return groups.flatten_or_zero(((groups.table - mean) / (mean + eps)).where(mean > 0, 0.0), singleton)


def _refuse_negative_weights(rewards: Sequence[Any], negative: str) -> None:
    """Check that no reward is subtracted; whether one is negative by itself is known only when it is computed."""
    for reward in rewards:
        if negative == "refuse" and reward.weight < 0:
            problem = (
                f"`max_rl` divides by the mean reward, and the reward '{reward.label}' has the weight {reward.weight:g}"
            )
            raise RecipeError(problem, allowed="weights of 0 or more", hint="leave it out, or choose another advantage")


max_rl.check = _refuse_negative_weights  # type: ignore[attr-defined]


def signed(
    rewards: Float[torch.Tensor, "B"],
    *,
    positive: NonNegativeFloat = 1.0,
    negative: NonNegativeFloat = 1.0,
    threshold: float | None = None,
) -> Float[torch.Tensor, "B"]:
    """Constant per outcome, without a baseline: positive and negative reinforcement, each with a weight of its own.

    Âᵢ = positive where r ≥ 1, else −negative: by right and wrong. arXiv 2506.01347: (1, 0) is PSR, (0, 1) NSR, and
    (0.1, 1) W-REINFORCE. Both 1: the reward ±1 of TOPR (2503.14286).

    Rewards must be 0 or 1; with a `threshold` a completion is right from that reward on. Equal rewards have no other
    advantage: a group that is all right, or all wrong, is trained on.

    >>> signed(torch.tensor([1.0, 0.0]), positive=0.1).tolist()
    [0.10000000149011612, -1.0]
    """
    correct = is_correct(rewards, threshold, "signed")
    return positive * correct - negative * (1 - correct)


def batch_mean(rewards: Float[torch.Tensor, "B"]) -> Float[torch.Tensor, "B"]:
    """Reward minus the mean of the generation batch: no groups, no std, no whitening (FlashREINFORCE).

    Âᵢ = rᵢ − mean r. OpenRLHF 0.11, `flash_reinforce`. One completion per prompt is enough. An easy prompt has a
    positive advantage for being easy. All rewards of the batch equal: exactly 0.

    >>> batch_mean(torch.tensor([1.0, 0.0, 0.0, 0.0])).tolist()
    [0.75, -0.25, -0.25, -0.25]
    """
    return (rewards - rewards.mean()).where(varies(rewards, 0), 0.0)


batch_mean.is_unbiased = True  # type: ignore[attr-defined]


def role_relative(
    rewards: Float[torch.Tensor, "B"],
    named_rewards: dict[str, torch.Tensor],
    group: Int[torch.Tensor, "B"],
    *,
    role: RewardName = "role",
    episode: RewardName = "episode",
    within_episode: Sequence[float] = (),
) -> Float[torch.Tensor, "B"]:
    """Reward minus the mean over the completions of the same role: of its episode, or of its group (hierarchical GRPO).

    Âᵢ = rᵢ − mean_same r: over completions with the role and the group of i, of roles in `within_episode` also with its
    episode. prime-rl, commit 559b447, `hierarchical_grpo`, whose `episode_agents` are these roles: one that acts
    several times in an episode is compared with itself there, one that acts once with the group's other episodes.

    Roles, and episodes if they are needed, are the values of the rewards `role` and `episode` (weight 0). Equal rewards
    among those compared, or a completion alone: exactly 0.

    >>> table = {"role": torch.tensor([0.0, 1.0, 1.0, 0.0]), "episode": torch.tensor([0.0, 0.0, 0.0, 1.0])}
    >>> role_relative(torch.tensor([1.0, 2.0, 4.0, 3.0]), table, torch.zeros(4).long(), within_episode=[1.0]).tolist()
    [-1.0, -1.0, 1.0, 1.0]
    """
    roles = named(named_rewards, role, where="advantage: role_relative.role")
    compared = [group.to(roles), roles]
    if within_episode:
        episodes = named(named_rewards, episode, where="advantage: role_relative.episode")
        is_own = (roles.unsqueeze(1) == roles.new_tensor([*within_episode])).any(1)
        compared.append(episodes.where(is_own, 0.0))
    _, label = torch.stack(compared, 1).nan_to_num(nan=-1.0).unique(dim=0, return_inverse=True)
    groups = Groups(rewards, label)
    return groups.flatten_or_zero(groups.table - groups.table.nanmean(1, keepdim=True))


def optimal_token_baseline(
    rewards: Float[torch.Tensor, "B"],
    token_rewards: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    sum_pi_squared: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
) -> Float[torch.Tensor, "B T"]:
    """Return minus the baseline of minimum variance at each token position (OTB).

    Âₜ = Rₜ − Σⱼ Rⱼₜ Wⱼₜ / (Σⱼ Wⱼₜ + 1e-8), with Rₜ = Σₗ rₜ₊ₗ and Wₜ = Σₛ≤ₜ (1 − 2 π_old(yₛ) + Σᵥ π(v)²): the squared
    norm of the gradient of log π with respect to the logits. arXiv 2602.07078; verl 0.9.1. A token of probability 1
    adds nothing, so completions with unlikely tokens decide the baseline.

    Where only the longest completion of a group has tokens left, its baseline is 0. All rewards of a group equal, or a
    group of one: exactly 0 (verl: the return).

    >>> mask, zeros = torch.ones(2, 1, dtype=torch.bool), torch.zeros(2)
    >>> half = torch.tensor([[0.5], [0.5]])
    >>> rewards = torch.tensor([1.0, 0.0])
    >>> optimal_token_baseline(rewards, rewards[:, None], half.log(), half, mask, zeros.long()).tolist()
    [[0.5], [-0.5]]
    """
    returns = discounted(token_rewards.where(mask, 0.0), 1.0, mask)
    variance = (1 - 2 * old_logp.exp() + sum_pi_squared).where(mask, 0.0).cumsum(1).where(mask, 0.0)
    _, line = torch.unique(group, return_inverse=True)
    zeros = variance.new_zeros(int(line.max()) + 1, mask.shape[1])
    total = zeros.index_add(0, line, variance)[line]
    baseline = zeros.index_add(0, line, returns * variance)[line] / (total + 1e-8)
    lengths = mask.sum(1).to(variance.dtype)
    groups = Groups(lengths, group)
    second = groups.table.nan_to_num(nan=0.0).sort(1, descending=True).values[:, 1:2]
    alone = mask.cumsum(1) > groups.flatten(second).unsqueeze(1) if second.numel() else mask
    compared = Groups(rewards, group)
    advantages = returns - baseline.where(~alone, 0.0)
    return advantages.where(mask & compared.flatten(compared.has_spread()).unsqueeze(1), 0.0)


def is_correct(rewards: Float[torch.Tensor, "B"], threshold: float | None, name: str) -> Float[torch.Tensor, "B"]:
    """Return 1 for right completions and 0 for wrong ones: from `threshold` on, or as the rewards 0 and 1 say."""
    if threshold is None and not ((rewards == 0) | (rewards == 1)).all():
        invalid = next(r for r in rewards.tolist() if r not in (0.0, 1.0))
        hint = "threshold: 1.0, if a completion is right from that reward on; or drop the other rewards and shapers"
        raise PartError(f"got the reward {invalid:g}", where=f"advantage: {name}", allowed="0 or 1", hint=hint)
    return rewards if threshold is None else (rewards >= threshold).to(rewards.dtype)


def _subset_probability(part: torch.Tensor, total: torch.Tensor, k: int) -> torch.Tensor:
    """C(part, k) / C(total, k): the probability that k draws without replacement are all in `part`."""
    draws = torch.arange(k, device=part.device)
    return ((part - draws).clamp(min=0) / (total - draws).clamp(min=1)).prod(1, keepdim=True)
