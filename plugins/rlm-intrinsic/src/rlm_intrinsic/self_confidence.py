"""RLSC: the likelihood of the policy's own samples, weighted by their probability (policy loss and algorithm)."""

from __future__ import annotations

from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat

from rlm_plugins.lazy import torch
from rlm_plugins.specs import Algorithm


def self_confidence(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    alpha: NonNegativeFloat = 0.1,
) -> Float[torch.Tensor, "B T"]:
    """Raise the log-likelihood of a sample by its own probability, without a baseline.

    ℓ = −(p_old + alpha) · log π, where p_old = Πₜ π_old(yₜ) is the probability of the whole completion, without
    gradient. RLSC, arXiv 2506.06395 eq. 6, with α 0.1 (§2.2). Use the aggregator `sequence_sum`, which sums log π over
    the completion. The advantage is not used.

    It ascends Σ_y π(y)² (α = 0), the probability that two samples agree. For completions of some hundred tokens p_old
    is 0, and α alone remains: every sample becomes more likely by the same weight, whose expected gradient is 0. A
    completion without trained tokens has no loss.

    >>> logp = torch.tensor([[0.5, 0.8]]).log()
    >>> self_confidence(logp, logp, torch.tensor([[True, True]])).sum()  # −(0.4 + 0.1) · log 0.4
    tensor(0.4581)
    """
    probability = old_logp.where(mask, 0.0).sum(1, keepdim=True).exp()
    return -(probability + alpha) * logp


rlsc = Algorithm(
    about="Self-confidence: the likelihood of each sample, weighted by its own probability. No reward, no baseline.",
    source="RLSC, arXiv 2506.06395 eq. 6",
    pitfalls="It needs a reward part for the held-out measure only: `rewards: [{name: accuracy, weight: 0}]`. It "
    "raises agreement, not correctness: accuracy follows where the most likely answer is right. The paper takes 10 "
    "or 20 steps of 16 samples a question at temperature 0.5 (§2.3); more steps collapse the entropy. Beyond some "
    "hundred tokens p_old is 0 and α alone counts. No code of the authors is public.",
    names={"policy_loss": "−(p_old + α) log p_θ"},
    advantage={"name": "group_relative", "scale": "none"},
    policy_loss={"name": "self_confidence", "alpha": 0.1},
    aggregator="sequence_sum",
)
