"""Generalized advantage estimation and the value loss; registered by `advantages` and `penalties`."""

from __future__ import annotations

from typing import Annotated, Literal

from jaxtyping import Bool, Float
from pydantic import Field, PositiveFloat

from rlm_plugins.batch import Log
from rlm_plugins.functional.statistics import discounted, next_live, whiten
from rlm_plugins.lazy import torch

Share = Annotated[float, Field(ge=0, le=1)]


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

    δₜ = rₜ + γVₜ₊₁ − Vₜ ;  Âₜ = Σₗ (γλ)ˡ δₜ₊ₗ ;  Rₜ = Âₜ + Vₜ, with V = 0 after the last token. arXiv 1506.02438
    eq. 16; then Â is whitened over the mask (PPO practice; `unbiased`: n − 1 in the variance, verl, or n, OpenRLHF and
    ORZ). Returns the pair (advantages, returns).

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


def value_loss(
    values: Float[torch.Tensor, "B T"],
    old_values: Float[torch.Tensor, "B T"],
    returns: Float[torch.Tensor, "B T"],
    log: Log | None = None,
    *,
    epsilon: PositiveFloat | None = 0.2,
) -> Float[torch.Tensor, "B T"]:
    """PPO's clipped value loss; trains the critic only.

    Ω = ½ max((V − R)², (V_old + clip(V − V_old, −ε, ε) − R)²). The code of arXiv 1707.06347, kept by RLHF libraries: no
    gradient of this batch once V has moved by ε towards R. An `epsilon` of null clips nothing: ½ (V − R)². ε is in
    units of reward: 0.2 in TRL and OpenRLHF, 0.5 in verl; use null for large rewards.

    The critic has its own optimizer, so `beta` has no effect on the policy: it scales the gradient that
    `critic.max_grad_norm` clips. V = R: value and gradient are 0.

    >>> value_loss(torch.tensor([[1.0]]), torch.tensor([[0.0]]), torch.tensor([[2.0]]), epsilon=0.5).item()
    1.125
    """
    unclipped = (values - returns).square()
    if epsilon is None:
        return 0.5 * unclipped
    clipped = ((values - old_values).clamp(-epsilon, epsilon) + old_values - returns).square()
    if log is not None:
        log("value_clipped", (clipped > unclipped).to(values.dtype))
    return 0.5 * torch.max(unclipped, clipped)
