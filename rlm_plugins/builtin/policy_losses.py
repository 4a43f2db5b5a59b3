"""ℓ: policy losses, functions of w and Â (hook ``rlm_policy_losses``). Per token, to be minimized."""

from __future__ import annotations

import math
from typing import Annotated

from jaxtyping import Bool, Float
from pydantic import Field, NonNegativeFloat, PositiveFloat

from rlm_plugins import hookimpl
from rlm_plugins.equation.batch import Log
from rlm_plugins.lazy import torch


def reinforce(logp: Float[torch.Tensor, "B T"], advantages: Float[torch.Tensor, "B #T"]) -> Float[torch.Tensor, "B T"]:
    """ℓ = −Â · log π. The policy gradient itself (Williams 1992); no ratio, no clip.

    >>> reinforce(torch.tensor([[-2.0, -0.5]]), torch.tensor([[2.0]])).tolist()
    [[4.0, 1.0]]
    """
    return -advantages * logp


def unclipped(
    ratio: Float[torch.Tensor, "B #T"], advantages: Float[torch.Tensor, "B #T"]
) -> Float[torch.Tensor, "B #T"]:
    """ℓ = −w Â. The surrogate without a clip (CPI, arXiv 1707.06347 eq. 6), for algorithms that bound w otherwise.

    GMPO clips inside w, KL-Cov penalizes the KL. At w = 1 the gradient is REINFORCE's. Â = 0: no gradient.

    >>> unclipped(torch.tensor([[1.5]]), torch.tensor([[2.0]])).item()
    -3.0
    """
    return -ratio * advantages


def clip(
    ratio: Float[torch.Tensor, "B #T"],
    advantages: Float[torch.Tensor, "B #T"],
    log: Log | None = None,
    *,
    epsilon: NonNegativeFloat = 0.2,
    epsilon_high: NonNegativeFloat | None = None,
    delta: PositiveFloat | None = None,
) -> Float[torch.Tensor, "B #T"]:
    """ℓ = −min(min(w, δ) Â, clip(w, 1−ε, 1+ε_high) Â): no gradient where Â > 0, w > 1+ε_high or Â < 0, w < 1−ε.

    PPO, arXiv 1707.06347 eq. 7. `epsilon_high` (default: `epsilon`) is DAPO's clip-higher, 2503.14476 eq. 10.
    `delta` (default: `∞`) caps w where Â < 0, and so bounds the loss of tokens that became likely. With δ > 1 + ε_high
    this is dual clip (1912.09729; verl's `clip_ratio_c`, always on, 3 by default) and two-sided clip (2505.07291; TRL's
    `delta`). For a smaller δ this is TRL's formula and no longer verl's. At w = 1 the gradient is REINFORCE's. Â = 0:
    no gradient.

    >>> clip(torch.tensor([[1.5]]), torch.tensor([[1.0]])).item()
    -1.2000000476837158
    """
    high = epsilon if epsilon_high is None else epsilon_high
    if log is not None:
        log("clipped_low", ((ratio < 1 - epsilon) & (advantages < 0)).float())
        log("clipped_high", ((ratio > 1 + high) & (advantages > 0)).float())
    clipped = ratio.clamp(1 - epsilon, 1 + high)
    unclipped = ratio if delta is None else ratio.clamp(max=delta)
    return -torch.min(unclipped * advantages, clipped * advantages)


def cispo(
    ratio: Float[torch.Tensor, "B #T"],
    advantages: Float[torch.Tensor, "B #T"],
    logp: Float[torch.Tensor, "B T"],
    log: Log | None = None,
    *,
    epsilon_high: Annotated[float, Field(gt=-1)] = 4.0,
    epsilon_low: NonNegativeFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """ℓ = −sg(clip(w, 1−ε_low, 1+ε_high)) · Â · log π: the weight is clipped, and every token keeps its gradient.

    MiniMax-M1, arXiv 2506.13585 eq. 4–5; the paper tunes ε_high only, so `epsilon_low` (default: `∞`) bounds nothing.
    Libraries disagree: verl clips to [1−0.2, 1+0.2]; TRL's `epsilon_high` *is* the cap, 1 + ours. Below 0 the cap is
    below 1, and on policy every token has the weight of the cap: TRL's default, −0.8, is a fifth of the step.

    >>> cispo(torch.tensor([[9.0]]), torch.tensor([[1.0]]), torch.tensor([[-0.5]])).item()
    2.5
    """
    if log is not None:
        log("capped", ((ratio > 1 + epsilon_high) & (advantages > 0)).float())
    weight = ratio.clamp(min=None if epsilon_low is None else 1 - epsilon_low, max=1 + epsilon_high)
    return -weight.detach() * advantages * logp


def sapo(
    ratio: Float[torch.Tensor, "B #T"],
    advantages: Float[torch.Tensor, "B #T"],
    *,
    tau_positive: PositiveFloat = 1.0,
    tau_negative: PositiveFloat = 1.05,
) -> Float[torch.Tensor, "B #T"]:
    """Soft clip: the gradient of a token decays smoothly with the distance of w from 1, without reaching 0 (SAPO).

    ℓ = −4/τ · σ(τ (w − 1)) · Â, with τ = τ_positive where Â > 0, else τ_negative. SAPO, arXiv 2511.20347. Its slope in
    w, −4 σ (1 − σ) Â, is steepest at w = 1 and there REINFORCE's (the value, −2/τ · Â, is not that of `clip`).

    A larger τ is a faster decay, by default faster for Â < 0. Â = 0: no gradient.

    >>> sapo(torch.tensor([[1.0]]), torch.tensor([[3.0]]), tau_positive=2.0).item()
    -3.0
    """
    tau = torch.full_like(advantages, tau_negative).where(advantages <= 0, tau_positive)
    return -(torch.sigmoid(tau * (ratio - 1)) * 4 / tau) * advantages


def vespo(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    advantages: Float[torch.Tensor, "B #T"],
    mask: Bool[torch.Tensor, "B T"],
    log: Log | None = None,
    *,
    k_positive: NonNegativeFloat = 2.0,
    lambda_positive: NonNegativeFloat = 3.0,
    k_negative: NonNegativeFloat = 3.0,
    lambda_negative: NonNegativeFloat = 2.0,
) -> Float[torch.Tensor, "B T"]:
    """A smooth weight of the product ratio v of the completion, without a clip (VESPO).

    ℓ = −sg(φ) · Â · log π, with φ = v^k exp(λ (1 − v)), v = exp(Σₜ (log π − log π_old)), k = k_positive where Â ≥ 0,
    else k_negative and λ = lambda_positive where Â ≥ 0, else lambda_negative. So φ is 1 at v = 1: stale completions,
    with v far from 1 in either direction, fade out. VESPO, arXiv 2602.10693; the default values are TRL 1.16's.

    log v is clamped to [log 1e-8, 20]; λ is at least 1e-4. The longer a completion, the further v is from 1. On policy
    the gradient is REINFORCE's. Â = 0: no gradient.

    >>> logp, mask = torch.tensor([[-1.0, -2.0]]), torch.ones(1, 2, dtype=torch.bool)
    >>> vespo(logp, logp, torch.tensor([[2.0]]), mask).tolist()
    [[2.0, 4.0]]
    """
    with torch.no_grad():
        log_ratio = (logp - old_logp).clamp(-20.0, 20.0).where(mask, 0.0).sum(-1, keepdim=True)
        log_w = log_ratio.clamp(math.log(1e-8), 20.0)
        is_positive = advantages >= 0
        k = torch.full_like(advantages, k_negative).where(~is_positive, k_positive)
        scale = torch.full_like(advantages, lambda_negative).where(~is_positive, lambda_positive).clamp(min=1e-4)
        weight = torch.exp(scale + k * log_w - scale * torch.exp(log_w)).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    if log is not None:
        log("phi", weight)
    return -weight * advantages * logp


@hookimpl
def rlm_policy_losses() -> dict[str, object]:
    return {
        "reinforce": reinforce,
        "clip": clip,
        "cispo": cispo,
        "unclipped": unclipped,
        "sapo": sapo,
        "vespo": vespo,
    }
