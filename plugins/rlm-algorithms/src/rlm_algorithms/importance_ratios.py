"""w and c: ratios of GMPO and GEPO, and weights and gates by the log-probs of the inference engine."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_algorithms.imitation_losses import sequence_mean
from rlm_algorithms.policy_losses import binary_kl
from rlm_plugins.lazy import torch


def geometric_clipped(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    advantages: Float[torch.Tensor, "B #T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    epsilon: NonNegativeFloat = 0.4,
    epsilon_high: NonNegativeFloat | None = None,
) -> Float[torch.Tensor, "B 1"]:
    """One ratio per completion, the geometric mean of token ratios, each clipped first on one side (GMPO).

    wᵢ = exp(1/nᵢ Σₜ dₜ), with dₜ = min(log wₜ, ε_high) where Â > 0, else max(log wₜ, −ε). GMPO, arXiv
    2507.20673; combine it with the policy loss `unclipped`.

    `epsilon` and `epsilon_high` (default: `epsilon`) are distances in log space: 0.4 allows e^−0.4 to e^0.4. A clipped
    token has no gradient. A completion without trained tokens has ratio 1.

    >>> log_ratio, mask = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.ones(2, 2, dtype=torch.bool)
    >>> geometric_clipped(log_ratio, torch.zeros(2, 2), torch.tensor([[1.0], [-1.0]]), mask, epsilon=0.5).tolist()
    [[0.25], [0.5]]
    """
    log_ratio = logp - old_logp
    high = epsilon if epsilon_high is None else epsilon_high
    return sequence_mean(torch.where(advantages > 0, log_ratio.clamp(max=high), log_ratio.clamp(min=-epsilon)), mask)


def group_expectation(
    logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"], expected_logp: Float[torch.Tensor, "B"]
) -> Float[torch.Tensor, "B 1"]:
    """Probability of a completion relative to its group's expectation, for less variance on stale samples (GEPO).

    wᵢ = pᵢ / Ê[q], with pᵢ = exp(1/nᵢ Σₜ log π(yₜ)) and Ê[q] = Σⱼ qⱼ² / Σⱼ qⱼ over the group and qᵢ = exp(1/nᵢ Σₜ log
    π_old(yₜ)). GEPO, arXiv 2508.17850; normalized by length as in its code. log Ê[q], our `expected_logp`, is computed
    over complete groups, however micro-batches split them (the authors' code treats micro-batches as groups).

    On policy w is not 1. A group of one: `sequence`. A completion without trained tokens has no gradient.

    >>> logp, mask = torch.tensor([[0.5, 0.5]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> group_expectation(logp, mask, torch.tensor([0.25]).log()).exp().tolist()
    [[2.0]]
    """
    return sequence_mean(logp, mask) - expected_logp.unsqueeze(1)


def truncated_importance(
    old_logp: Float[torch.Tensor, "B T"],
    rollout_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    cap: PositiveFloat = 2.0,
    level: Literal["token", "sequence"] = "token",
) -> Float[torch.Tensor, "B #T"]:
    """Truncated importance ratio of trainer to inference engine (TIS).

    c = min({level token → π_old/π_rollout; else → exp(Σₜ (log π_old − log π_rollout))}, cap). TIS of FlashRL (Yao et
    al., "Your efficient RL framework secretly brings you off-policy RL training", 2025); its C is `cap`, 2 in verl's
    recipe. `level` "sequence" takes the product over the completion's tokens instead, (B, 1).

    If both agree, c is 1. A token whose probability was not reported (NaN) has ratio 1.

    >>> old, rollout = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -3.0]])
    >>> truncated_importance(old, rollout, torch.tensor([[True, True]])).tolist()
    [[1.0, 2.0]]
    """
    log_ratio = (old_logp - rollout_logp).nan_to_num(nan=0.0).where(mask, 0.0)
    log_ratio = log_ratio.sum(1, keepdim=True) if level == "sequence" else log_ratio
    return log_ratio.clamp(-20.0, 20.0).exp().clamp(max=cap)


def trust_gate(
    old_logp: Float[torch.Tensor, "B T"],
    rollout_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    of: Literal["ratio", "binary_kl", "symmetric_kl", "tv"] = "ratio",
    level: Literal["token", "sequence", "sequence_mean"] = "token",
    low: NonNegativeFloat = 0.0,
    high: PositiveFloat = 5.0,
    weighted: bool = True,
) -> Float[torch.Tensor, "B #T"]:
    """Ratio inside a trust region, 0 outside: no gradient if trainer and engine disagree too much.

    c = {weighted true → u; false → 1} where D ≥ low and D ≤ high, else 0, with u = {level sequence → v; else → q}, v =
    {of ratio → D; else → q}, D = {of ratio → exp(s); else → s}, s = {level token → d; sequence → Σₜ d; sequence_mean →
    meanₜ d}, d = {of ratio → log(q); tv → |π_rollout − π_old|; binary_kl → KL₂(π_rollout, π_old); symmetric_kl →
    max(KL₂(π_rollout, π_old), KL₂(π_old, π_rollout))} and q = π_old/π_rollout. `of` "ratio" is IcePop's (Ling team,
    2025), α 0.5 and β 5; "binary_kl" that of FlashREINFORCE in OpenRLHF; "symmetric_kl" KPop's in AReaL, 2.0 nats.

    KL₂ is that of two outcomes. Dropped tokens stay in every denominator. Unreported (NaN): ratio 1, divergence 0.

    >>> old, rollout = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -3.0]])
    >>> trust_gate(old, rollout, torch.tensor([[True, True]])).tolist()
    [[1.0, 0.0]]
    """
    sampled = old_logp.where(rollout_logp.isnan() | ~mask, rollout_logp)
    log_ratio, measured = old_logp - sampled, _disagreement(old_logp, sampled, of)
    if level != "token":
        measured = sequence_mean(measured, mask) * (mask.sum(1, keepdim=True) if level == "sequence" else 1)
    measured = measured.clamp(-20.0, 20.0).exp() if of == "ratio" else measured
    weight = measured if of == "ratio" and level == "sequence" else log_ratio.clamp(-20.0, 20.0).exp()
    return (weight if weighted else torch.ones_like(weight)).where((low <= measured) & (measured <= high), 0.0)


def _disagreement(
    old_logp: Float[torch.Tensor, "B T"], sampled_logp: Float[torch.Tensor, "B T"], of: str
) -> Float[torch.Tensor, "B T"]:
    """Return the log-ratio, or a divergence, of each token."""
    p, q = sampled_logp.exp(), old_logp.exp()
    if of == "ratio":
        return old_logp - sampled_logp
    if of == "tv":
        return (p - q).abs()
    forward = binary_kl(p, q)
    return torch.max(forward, binary_kl(q, p)) if of == "symmetric_kl" else forward


for _ratio in (geometric_clipped, group_expectation):
    _ratio.granularity = "sequence"  # type: ignore
