"""Â from outcomes: MaxRL, the signed reward (PSR, NSR), the mean of the batch, and the optimal baseline per token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat

from rlm_algorithms.group_advantages import is_correct
from rlm_plugins.equation.knobs import RewardName, named
from rlm_plugins.equation.statistics import Groups, Singleton, discounted, varies
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.lazy import torch


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
