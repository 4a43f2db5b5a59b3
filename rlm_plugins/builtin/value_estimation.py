"""What a critic is read with and taught by. (Offered by `advantages` and `penalties`.)"""

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
    masked_tokens: Literal["skip", "through"] = "skip",
) -> tuple[Float[torch.Tensor, "B T"], Float[torch.Tensor, "B T"]]:
    """Generalised advantage estimation: an exponential mix of all n-step surprises of a critic.

    δₜ = rₜ + γVₜ₊₁ − Vₜ ;  Âₜ = Σₗ (γλ)ˡ δₜ₊ₗ ;  Rₜ = Âₜ + Vₜ, with V = 0 after the last token. arXiv 1506.02438
    eq. 16; then Â is whitened over the mask (PPO practice; `unbiased`: n − 1 in the variance, verl, or n, OpenRLHF and
    ORZ). Returns the pair (advantages, returns).

    `lam_critic` (default: `lam`) is the λ of the returns alone: 1 teaches the critic the rewards that really came,
    whatever λ the policy learns with (decoupled GAE, VC-PPO, 2503.01491). `by_length` α takes λᵢ = 1 − 1/(α nᵢ), 0 at
    least, in place of `lam`, with nᵢ the trained tokens of the row: long rows are seen to their end (VAPO, 2504.05118).

    Masked tokens inside a row (tool output): "skip" steps over them (verl, NeMo-RL), "through" lets them discount
    as tokens of value and reward 0 (OpenRLHF, ORZ). λ = 1, γ = 1: Âₜ = R − Vₜ.

    >>> rewards, values = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.5]])
    >>> gae(rewards, values, torch.ones(1, 2, dtype=torch.bool), lam=1.0, whitened=False)[0].tolist()
    [[0.5, 0.5]]
    """
    live = mask if masked_tokens == "skip" else torch.ones_like(mask)
    rewards, values = token_rewards.where(mask, 0.0), values.where(mask, 0.0)
    surprises = rewards + gamma * next_live(values, live) - values
    decay = lam if by_length is None else (1 - 1 / (by_length * mask.sum(1)).to(values.dtype)).clamp(min=0.0)
    advantages = discounted(surprises, gamma * decay, live).where(mask, 0.0)
    foreseen = advantages
    if lam_critic is not None:
        foreseen = discounted(surprises, gamma * lam_critic, live).where(mask, 0.0)
    return whiten(advantages, mask, unbiased=unbiased) if whitened else advantages, foreseen + values


def value_loss(
    values: Float[torch.Tensor, "B T"],
    old_values: Float[torch.Tensor, "B T"],
    returns: Float[torch.Tensor, "B T"],
    log: Log | None = None,
    *,
    epsilon: PositiveFloat | None = 0.2,
) -> Float[torch.Tensor, "B T"]:
    """How wrong the critic was; what teaches it, and moves nothing of the policy.

    Ω = ½ max((V − R)², (V_old + clip(V − V_old, −ε, ε) − R)²). The code of arXiv 1707.06347, kept by RLHF libraries:
    once V has moved ε towards R it is not pulled further by this batch. An `epsilon` of null clips nothing: ½ (V − R)².
    ε is in units of reward: 0.2 in TRL and OpenRLHF, 0.5 in verl; take null where rewards are large.

    The critic has an optimiser of its own, so `beta` weighs nothing against the policy: it scales the gradient that
    `critic.max_grad_norm` clips. V = R: value and gradient are 0.

    >>> value_loss(torch.tensor([[1.0]]), torch.tensor([[0.0]]), torch.tensor([[2.0]]), epsilon=0.5).item()
    1.125
    """
    wrong = (values - returns).square()
    if epsilon is None:
        return 0.5 * wrong
    kept = ((values - old_values).clamp(-epsilon, epsilon) + old_values - returns).square()
    if log is not None:
        log("value_clipped", (kept > wrong).to(values.dtype))
    return 0.5 * torch.max(wrong, kept)
