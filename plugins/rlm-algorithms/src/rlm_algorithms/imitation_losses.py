"""Imitation terms, and a loss by correctness alone; registered by `penalties` and `policy_losses`.

With the key `source` a term applies to that rollout source only: ``{name: nll, beta: 1.0, source: demonstrations}``.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_plugins.equation.batch import Batch
from rlm_plugins.lazy import torch


def nll(
    logp: Float[torch.Tensor, "B T"],
    entropy: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    weighted_by: Literal["nothing", "probability", "certainty", "uncertainty"] = "nothing",
) -> Float[torch.Tensor, "B T"]:
    """Negative log-likelihood of the completion, as in supervised fine-tuning.

    Ω = −{weighted_by nothing → log π; probability → sg(π) · log π; uncertainty → sg(π (1 − π)) · log π; certainty →
    e^(−H̄) · log π}. "probability" is DFT (arXiv 2508.05629), small steps on unlikely tokens; "uncertainty" CHORD-φ
    (2508.11408), small steps on likely ones too; "certainty" the supervised term of SRFT (2506.19767), H̄ the mean
    entropy of the completion, without gradient.

    With ``{min_reward: 1.0, aggregator: token_mean, beta: 0.1}`` it is the positive-example term of VAPO (2504.05118),
    the mean over the tokens of right completions.

    >>> nll(torch.tensor([[-2.0]]), torch.zeros(1, 1), torch.tensor([[True]])).tolist()
    [[2.0]]
    """
    weight = torch.ones_like(logp)
    if weighted_by == "probability":
        weight = weight * logp.detach().exp()
    if weighted_by == "uncertainty":
        weight = logp.detach().exp() * (1 - logp.detach().exp())
    if weighted_by == "certainty":
        weight = weight * (-sequence_mean(entropy.detach(), mask)).exp()
    return -weight * logp


def environment_nll(
    logp: Float[torch.Tensor, "B T"],
    observation_mask: Bool[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    step_batch: Batch,
) -> Float[torch.Tensor, "B 1"]:
    """Negative log-likelihood of what the environment writes after the first response (ECHO): a world model.

    Ω = −N / (n M) · Σ_env log π: over the tokens of the environment, n trained tokens in the completion, N in the step,
    M tokens of the environment in the step. With the aggregator `token_mean` it is the mean over those M tokens.
    prime-rl, commit 559b447, `echo`, whose coefficient is 0.1. The tokens that the chat template puts around a message
    are counted, prime-rl leaves them out. They stay outside of the policy loss. No such token: 0.

    >>> logp, mask = torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, False]])
    >>> environment_nll(logp, ~mask, mask, Batch(mask=mask, observation_mask=~mask)).item()
    3.0
    """
    is_trained = mask.any(1, keepdim=True)
    count = (step_batch.observation_mask & step_batch.mask.any(1, keepdim=True)).sum().clamp(min=1)
    total = logp.where(observation_mask & is_trained, 0.0).sum(1, keepdim=True)
    return -total * step_batch.mask.sum() / count / mask.sum(1, keepdim=True).clamp(min=1)


def policy_shaping(
    logp: Float[torch.Tensor, "B T"],
    advantages: Float[torch.Tensor, "B #T"],
    *,
    gamma: PositiveFloat | None = 0.1,
) -> Float[torch.Tensor, "B T"]:
    """Policy gradient on completions whose sampling probability is unknown (LUFFY's policy shaping).

    Ω = −{gamma null → π; else → π / (π + γ)} · Â. LUFFY, arXiv 2504.14945, with γ 0.1: the unknown probability of the
    demonstrator counts as 1, and the slope γ / (π + γ)² gives unlikely tokens the largest gradient. The slope of π
    itself, used by SRFT (2506.19767), gives them the smallest. Â = 0: no gradient.

    >>> policy_shaping(torch.tensor([[0.1]]).log(), torch.tensor([[2.0]])).item()
    -1.0
    """
    probability = logp.exp()
    shaped = probability if gamma is None else probability / (probability + gamma)
    return -shaped * advantages


def correctness(
    logp: Float[torch.Tensor, "B T"],
    rewards: Float[torch.Tensor, "B"],
    entropy: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    positive_weight: NonNegativeFloat = 0.1,
    threshold: float = 1.0,
) -> Float[torch.Tensor, "B T"]:
    """Likelihood of right completions up, of wrong ones down, without comparison within the group (SRFT).

    ℓ = −s log π, with s = positive_weight · e^H̄ where r ≥ threshold, else −1. H̄ is the mean entropy of the
    completion, without gradient. The self-rollout term of SRFT, arXiv 2506.19767: right completions weigh more while
    the entropy is high, so that it does not collapse. The advantage is not used.

    >>> logp, mask = torch.tensor([[-2.0], [-2.0]]), torch.tensor([[True], [True]])
    >>> correctness(logp, torch.tensor([1.0, 0.0]), torch.zeros(2, 1), mask, positive_weight=0.5).tolist()
    [[1.0], [-2.0]]
    """
    right = (rewards >= threshold).unsqueeze(1)
    weight = positive_weight * sequence_mean(entropy.detach(), mask).clamp(max=20.0).exp()  # entropies are far below 20
    return -weight.where(right, -1.0) * logp


def sequence_mean(x: Float[torch.Tensor, "B #T"], mask: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B 1"]:
    """Return the mean over the trained tokens of each completion; 0 if it has none."""
    return x.expand(mask.shape).where(mask, 0.0).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
