"""w and c: ratios of GMPO and GEPO, and weights that correct for the log-probs of the inference engine."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat, PositiveFloat

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

    wᵢ = exp(1/nᵢ Σₜ dₜ), with dₜ = min(log wₜ, ε_high) where Â > 0 and max(log wₜ, −ε) elsewhere. GMPO, arXiv
    2507.20673; combine it with the policy loss `unclipped`.

    `epsilon` and `epsilon_high` (default: `epsilon`) are distances in log space: 0.4 allows e^−0.4 to e^0.4. A clipped
    token has no gradient. A completion without trained tokens has ratio 1.

    >>> log_ratio, mask = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.ones(2, 2, dtype=torch.bool)
    >>> geometric_clipped(log_ratio, torch.zeros(2, 2), torch.tensor([[1.0], [-1.0]]), mask, epsilon=0.5).tolist()
    [[0.25], [0.5]]
    """
    log_ratio = logp - old_logp
    high = epsilon if epsilon_high is None else epsilon_high
    return _sequence_mean(torch.where(advantages > 0, log_ratio.clamp(max=high), log_ratio.clamp(min=-epsilon)), mask)


def group_expectation(
    logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"], expected_logp: Float[torch.Tensor, "B"]
) -> Float[torch.Tensor, "B 1"]:
    """Probability of a completion relative to its group's expectation, for less variance on stale samples (GEPO).

    wᵢ = pᵢ / Ê[q], with pᵢ = exp(1/nᵢ Σₜ log π(yₜ)) and Ê[q] = Σⱼ qⱼ² / Σⱼ qⱼ over the group, q as p but under
    the old policy. GEPO, arXiv 2508.17850; normalized by length as in its code. log Ê[q], our `expected_logp`, is
    computed over complete groups, however micro-batches split them (the authors' code treats micro-batches as groups).

    On policy w is not 1. A group of one: `sequence`. A completion without trained tokens has no gradient.

    >>> logp, mask = torch.tensor([[0.5, 0.5]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> group_expectation(logp, mask, torch.tensor([0.25]).log()).exp().tolist()
    [[2.0]]
    """
    return _sequence_mean(logp, mask) - expected_logp.unsqueeze(1)


Level = Literal["token", "sequence"]


def truncated_importance(
    old_logp: Float[torch.Tensor, "B T"],
    rollout_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    cap: PositiveFloat = 2.0,
    level: Level = "token",
) -> Float[torch.Tensor, "B #T"]:
    """c = min(π_old / π_rollout, cap): a truncated importance ratio of trainer to inference engine (TIS).

    TIS of FlashRL (Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025); its C
    is `cap`, 2 in verl's recipe. `level` "sequence" takes the product over the completion's tokens instead, (B, 1).

    If both agree, c is 1. A token whose probability was not reported (NaN) has ratio 1.

    >>> old, rollout = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -3.0]])
    >>> truncated_importance(old, rollout, torch.tensor([[True, True]])).tolist()
    [[1.0, 2.0]]
    """
    return _mismatch(old_logp, rollout_logp, mask, level).clamp(max=cap)


def masked_importance(
    old_logp: Float[torch.Tensor, "B T"],
    rollout_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    low: NonNegativeFloat = 0.5,
    high: PositiveFloat = 5.0,
    level: Level = "token",
) -> Float[torch.Tensor, "B #T"]:
    """c = π_old / π_rollout between low and high, 0 outside: no gradient if trainer and engine disagree too much.

    IcePop (Ling team, 2025), with α called `low` and β `high`. `level` "sequence": the product over the completion's
    tokens decides about the completion, (B, 1). The tokens stay in every denominator. Unreported (NaN): ratio 1.

    >>> old, rollout = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -3.0]])
    >>> masked_importance(old, rollout, torch.tensor([[True, True]])).tolist()
    [[1.0, 0.0]]
    """
    ratio = _mismatch(old_logp, rollout_logp, mask, level)
    return ratio.where((ratio >= low) & (ratio <= high), 0.0)


def _mismatch(
    old_logp: Float[torch.Tensor, "B T"],
    rollout_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    level: Level,
) -> Float[torch.Tensor, "B #T"]:
    log_ratio = (old_logp - rollout_logp).nan_to_num(nan=0.0).where(mask, 0.0)
    log_ratio = log_ratio.sum(1, keepdim=True) if level == "sequence" else log_ratio
    return log_ratio.clamp(-20.0, 20.0).exp()


def _sequence_mean(x: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B 1"]:
    return (x.where(mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)


for _ratio in (geometric_clipped, group_expectation):
    _ratio.granularity = "sequence"  # type: ignore
