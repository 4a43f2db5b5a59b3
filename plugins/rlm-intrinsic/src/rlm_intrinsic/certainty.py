"""Certainty of the policy in its own completions as reward, loss or advantage, and the random control reward."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat

from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.equation.knobs import Share
from rlm_plugins.equation.statistics import Groups
from rlm_plugins.lazy import torch
from rlm_plugins.specs import Algorithm


def self_certainty(
    rewards: Float[torch.Tensor, "B"],
    self_certainty: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    weight: float = 1.0,
) -> Float[torch.Tensor, "B"]:
    """Add the mean divergence of the policy from the uniform distribution.

    r′ = r + weight · meanₜ KL(U ‖ πₜ), that is H(U, πₜ) − log V. Intuitor (RLIF), arXiv 2505.19590; its code omits the
    constant log V, which cancels within a group.

    It is a mean over the vocabulary, so the tail dominates: a token moved from e⁻²⁰ to e⁻⁴⁰ counts as much as a
    relevant one. It depends less on length than a sum, but certain tokens (repetition) raise it. An empty completion
    gets 0.
    """
    return rewards + weight * _mean(self_certainty, mask)


def token_entropy(
    rewards: Float[torch.Tensor, "B"],
    entropy: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    weight: float = 1.0,
    mean: bool = True,
) -> Float[torch.Tensor, "B"]:
    """Subtract the mean token entropy.

    r′ = r − weight · meanₜ H(πₜ), or the sum over t unless `mean`. RENT, arXiv 2505.22660; EM-RL (token), arXiv
    2505.15134, which sums.

    Unlike an entropy term in the loss it has no gradient of its own: it only ranks sampled completions. With `mean`
    repetition maximizes it most easily, with the sum, brevity. An empty completion gets 0, the maximum.
    """
    value = -_mean(entropy, mask)
    return rewards + weight * (value if mean else value * mask.sum(1))


def _mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean over the tokens where `mask` is True; 0 over none."""
    return x.where(mask, 0.0).sum(1) / mask.sum(1).clamp(min=1)


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


def entropy_reshaped(
    rewards: Float[torch.Tensor, "B"],
    entropy: Float[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
) -> Float[torch.Tensor, "B"]:
    """Compute the group-relative advantage, larger for certain completions and smaller for uncertain ones.

    Âᵢ = Y (r − mean_g r) / (std_g r + 1e-4), with Y = 1 + (mean_g H̄ − H̄) / mean_g H̄. H̄ is the mean entropy of the
    tokens of completion i before the update, and mean_g H̄ that of its group. ETTRL, arXiv 2508.11356, Adv-Res of its
    entropy-based advantage reshaping.

    Y is 1 where all completions are equally uncertain, and the mean of Y over a group is 1. A completion more than
    twice as uncertain as its group has Y < 0: its advantage changes sign, as in the formula. A group without entropy
    has Y = 1; all rewards of a group equal: exactly 0. A completion without trained tokens counts as H = 0.

    >>> entropy = torch.tensor([[0.1, 0.1], [0.3, 0.3]])
    >>> mask, group = torch.ones(2, 2).bool(), torch.zeros(2).long()
    >>> entropy_reshaped(torch.tensor([1.0, 0.0]), entropy, group, mask).div(0.70700).round(decimals=2).tolist()
    [1.5, -0.5]
    """
    advantages = group_relative(rewards, group)
    groups = Groups(entropy.where(mask, 0.0).sum(1) / mask.sum(1).clamp(min=1), group)
    mean = groups.table.nanmean(1, keepdim=True)
    factor = groups.flatten(torch.where(mean > 0, 2 - groups.table / mean, 1.0))
    return factor.to(advantages.dtype) * advantages


ettrl = Algorithm(
    about="Test-time reinforcement learning on majority votes; certain completions weigh more than uncertain ones.",
    source="ETTRL, arXiv 2508.11356: entropy-based advantage reshaping (Adv-Res). Its formulas were read in summaries",
    pitfalls="It needs `rewards: [majority_vote]`. Its rollouts (ETMR) are the source `entropy_tree` of rlm-process: "
    "`rollouts: [{name: entropy_tree, by: entropy, trunks: 12, forks: 4, branches: 2}]` with 60 completions is the "
    "paper's M = 12 trees, N = 2 points with B = 2 branches each, M (1 + N B) votes. Votes of one tree are not "
    "independent. Reshaping trusts certainty: where the policy is certain of wrong answers it amplifies them.",
    names={"advantage": "Â^res = Y Â"},
    advantage="entropy_reshaped",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="sequence_mean",
)


def random_reward(
    prompt_messages: Sequence[Any],
    completions: Sequence[str],
    trainer_state: Any = None,
    *,
    probability: Share = 0.5,
    seed: int = 0,
) -> list[float]:
    """Return 1 with `probability`, independent of the completion.

    r ~ Bernoulli(probability). The control of «Spurious Rewards», arXiv 2506.10947: compare any reward of this
    package with it. A gain that this control reaches, too, is not due to the reward.

    The draw is a hash of prompt, completion, step and `seed`, so a resumed run repeats it. It carries no
    information, since the same text is drawn anew at every step. Equal texts of one group share a draw.

    Pitfalls: its expected gradient is 0 only where the loss is linear in Â. An asymmetric clip turns noise into a bias
    towards completions that the policy prefers already, which is why some models gain from it.
    """
    step = getattr(trainer_state, "global_step", 0)
    pairs = zip(prompt_messages, completions, strict=True)
    return [float(_uniform(repr((seed, step, prompt, text))) < probability) for prompt, text in pairs]


def _uniform(text: str) -> float:
    """Return a number in [0, 1), a hash of the text."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / 2**53
