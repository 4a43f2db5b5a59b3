"""Losses without a reward: the weighted likelihood (RLSC) and the entropy (EM-FT) of the policy's own samples."""

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

    ℓ = −(p_old + alpha) · log π, with p_old = exp(Σₜ log π_old), the probability of the completion. RLSC, arXiv
    2506.06395 eq. 6, with α 0.1 (§2.2). Use the aggregator `sequence_sum`, which sums log π over the completion. The
    advantage is not used.

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


def token_entropy_loss(entropy: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """Lower the entropy of the policy at each token of its samples, with the gradient through the entropy.

    ℓ = H(πₜ). EM-FT, arXiv 2505.15134 eq. 2, and one-shot entropy minimization, 2505.20282. Neither reward nor
    advantage is used. Unlike the shaper `token_entropy` it compares no samples: the entropy itself is differentiated,
    and the choice of the sample is not.

    >>> token_entropy_loss(torch.tensor([[0.5, 0.1]])).tolist()
    [[0.5, 0.10000000149011612]]
    """
    return 1.0 * entropy


em_ft = Algorithm(
    about="The token entropy of the policy's samples is minimized: no reward, no advantage.",
    source="EM-FT, arXiv 2505.15134; on one prompt: one-shot entropy minimization, 2505.20282",
    pitfalls="It needs a reward part for the held-out measure only: `rewards: [{name: accuracy, weight: 0}]`. The "
    "one-shot paper takes 10 steps on a single prompt (`environment: {max_rows: 1}`), with the prompt whose accuracy "
    "varies most, and reports that more steps harm: the policy collapses to its most likely answers, right or "
    "wrong. Monitor `entropy`, and stop when held-out accuracy falls. Its script has a learning rate of 2e-5 "
    "for all weights.",
    names={"policy_loss": "L_EM, token-level entropy"},
    advantage={"name": "group_relative", "scale": "none"},
    policy_loss="token_entropy_loss",
    aggregator="token_mean",
)
