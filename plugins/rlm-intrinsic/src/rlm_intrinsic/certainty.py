"""r′: certainty of the policy in its own completion (hook ``rlm_shapers``), from one forward pass before the update.

All have one form, the survey's (arXiv 2509.08827, eq. 6)::

    u = Ψ( σ/|I| · Σ_{t∈I} H(qₜ, πₜ) ),    H(q, π) = −Σ_v q(v) log π(v)

================================  ================  ====  ==========================
shaper                            qₜ                σ     Ψ
================================  ================  ====  ==========================
`self_certainty`                  uniform           +1    x − log V
`sequence_likelihood`             the token yₜ       −1    x
`token_entropy`                   πₜ                −1    x
`sequence_probability`            the token yₜ       −1    exp(|I| · x)
================================  ================  ====  ==========================

Each adds `weight` · u to the reward; for u alone, give the recipe's rewards weight 0. None of them depends on the
answer's correctness: they reward certainty. A model whose certain answers are mostly correct improves for a while. Then
entropy collapses, and exploration with it. Monitor `entropy`, keep a labelled `evaluation.metric`, use few steps, a
small learning rate and a KL penalty.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated, Literal

from jaxtyping import Bool, Float
from pydantic import Field

from rlm_plugins.batch import Log
from rlm_plugins.lazy import torch

Count = Annotated[int, Field(ge=1)]
Outer = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Ψ, of the mean (B,) and of |I| (B,)."""
VANISHING = 1e-4
"""Largest std that group-relative advantages treat as none (`eps`)."""


def unified(
    cross_entropy: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    sigma: Literal[1, -1],
    outer: Outer | None = None,
) -> Float[torch.Tensor, "B"]:
    """Compute u = Ψ( σ/|I| · Σ_{t∈I} H(qₜ, πₜ) ), I the tokens where `mask` is True; the mean over no token is 0.

    >>> unified(torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]]), sigma=-1).tolist()
    [-2.0]
    """
    count = mask.sum(1)
    mean = sigma * cross_entropy.where(mask, 0.0).sum(1) / count.clamp(min=1)
    return mean if outer is None else outer(mean, count)


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
    return rewards + weight * unified(self_certainty, mask, sigma=1)


def sequence_likelihood(
    rewards: Float[torch.Tensor, "B"],
    old_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    weight: float = 1.0,
    mean: bool = True,
) -> Float[torch.Tensor, "B"]:
    """Add the completion's log-likelihood: a one-sample estimate of the negative trajectory entropy.

    r′ = r + weight · meanₜ log π(yₜ), or the sum over t unless `mean`. EM-RL (sequence), arXiv 2505.15134; the survey's
    table has the mean, the paper the sum.

    The sum rewards brevity: each further token costs. The mean rewards padding with certain tokens. An empty
    completion gets 0, the maximum.
    """
    return rewards + weight * unified(-old_logp, mask, sigma=-1, outer=None if mean else _times_count)


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
    return rewards + weight * unified(entropy, mask, sigma=-1, outer=None if mean else _times_count)


def sequence_probability(
    rewards: Float[torch.Tensor, "B"],
    old_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    log: Log | None = None,
    *,
    weight: float = 1.0,
) -> Float[torch.Tensor, "B"]:
    """Add the probability of the whole completion.

    r′ = r + weight · Πₜ π(yₜ). RLSC, arXiv 2506.06395, as in the survey's table; the paper differentiates it
    directly, without baseline.

    Its expectation is Σ_y π(y)², largest for a deterministic policy. A std below the `eps` of the advantage (1e-4) is
    divided by that, so completions less likely than it have no advantage: a warning says so once, and
    `shapers/sequence_probability` in the log is the mean. The paper's own loss is the algorithm `rlsc`. An empty
    completion gets `weight`, the maximum.
    """
    probability = unified(-old_logp, mask, sigma=-1, outer=lambda mean, count: (mean * count).exp())
    if log is not None:
        log("sequence_probability", probability.mean().item())
    if probability.where(mask.any(1), 0.0).max() < VANISHING:
        warnings.warn(
            f"sequence_probability: no completion has a probability above {VANISHING:g}; advantages are about 0; "
            "`algorithm: rlsc` has the loss of the paper, which does not vanish",
            stacklevel=2,
        )
    return rewards + weight * probability


def probability_disparity(
    rewards: Float[torch.Tensor, "B"],
    top2_margin: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    last: Count | None = None,
    weight: float = 1.0,
) -> Float[torch.Tensor, "B"]:
    """Add the mean margin of the most likely token over the second.

    r′ = r + weight · meanₜ (p₁ − p₂), over the `last` trained tokens, or all. RLSF, arXiv 2507.21931.

    The paper uses the tokens of the answer alone, and ranks completions for preference optimization. A shaper has no
    text: `last` is the number of tokens from the answer to the end, so it requires a fixed format. A saturated model
    gets 1 for any completion. An empty completion gets 0.
    """
    until_end = mask.flip(1).cumsum(1).flip(1)
    answer = mask if last is None else mask & (until_end <= last)
    return rewards + weight * unified(top2_margin, answer, sigma=1)


def _times_count(mean: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return mean * count
