"""r′: how sure the model was of what it wrote (hook ``rlm_shapers``), all read off one forward pass before the update.

One form holds them, the survey's (arXiv 2509.08827, eq. 6)::

    u = Ψ( σ/|I| · Σ_{t∈I} H(qₜ, πₜ) ),    H(q, π) = −Σ_v q(v) log π(v)

================================  ================  ====  ==========================
shaper                            qₜ                σ     Ψ
================================  ================  ====  ==========================
`self_certainty`                  uniform           +1    x − log V
`sequence_likelihood`             the token yₜ       −1    x
`token_entropy`                   πₜ                −1    x
`sequence_probability`            the token yₜ       −1    exp(|I| · x)
================================  ================  ====  ==========================

Each adds `weight` · u to the reward; for u alone, give the recipe's rewards weight 0. None of them looks at the answer:
what they teach is to be sure. A model that is usually right when it is sure gains, for a while; then entropy
collapses, and with it exploration. Watch `entropy`, keep a labelled `evaluation.metric`, use few steps and a small
learning rate, and a KL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from jaxtyping import Bool, Float
from pydantic import Field

from rlm_plugins.lazy import torch

Count = Annotated[int, Field(ge=1)]
Outer = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Ψ, of the mean (B,) and of |I| (B,)."""


def unified(
    cross_entropy: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    sigma: Literal[1, -1],
    outer: Outer | None = None,
) -> Float[torch.Tensor, "B"]:
    """u = Ψ( σ/|I| · Σ_{t∈I} H(qₜ, πₜ) ), I the tokens where `mask` is True; a row without any has a mean of 0.

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
    """How far from uniform the distributions were that the tokens were drawn from.

    r′ = r + weight · meanₜ KL(U ‖ πₜ), that is H(U, πₜ) − log V. Intuitor (RLIF), arXiv 2505.19590; its code leaves the
    constant log V out, which no group comparison sees.

    It is a mean over the vocabulary, so the tail decides: a token pushed from e⁻²⁰ to e⁻⁴⁰ counts as much as one that
    matters. Less bound to length than a sum, but easy certain tokens (repetition) raise the mean. An empty row gets 0.
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
    """How likely the row was: the negative trajectory entropy, seen at one sample.

    r′ = r + weight · meanₜ log π(yₜ), or the sum over t unless `mean`. EM-RL (sequence), arXiv 2505.15134; the survey's
    table has the mean, the paper the sum.

    The sum pays for brevity: every further token costs. The mean pays for padding with what is certain. An empty row
    gets 0, the most there is.
    """
    return rewards + weight * unified(-old_logp, mask, sigma=-1, outer=None if mean else _summed)


def token_entropy(
    rewards: Float[torch.Tensor, "B"],
    entropy: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    weight: float = 1.0,
    mean: bool = True,
) -> Float[torch.Tensor, "B"]:
    """How little the model hesitated.

    r′ = r − weight · meanₜ H(πₜ), or the sum over t unless `mean`. RENT, arXiv 2505.22660; EM-RL (token), arXiv
    2505.15134, which sums.

    Unlike a bonus in the loss it has no gradient of its own: it chooses among what was written. With `mean` repetition
    is the cheapest way to it, with the sum, saying little. An empty row gets 0, the most there is.
    """
    return rewards + weight * unified(entropy, mask, sigma=-1, outer=None if mean else _summed)


def sequence_probability(
    rewards: Float[torch.Tensor, "B"],
    old_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    weight: float = 1.0,
) -> Float[torch.Tensor, "B"]:
    """The probability of the whole row: what is written often is worth most.

    r′ = r + weight · Πₜ π(yₜ). RLSC, arXiv 2506.06395, as the survey's table has it; the paper takes its gradient
    directly, without baseline.

    Its expected value is Σ_y π(y)², greatest where one row has it all. Beyond some hundred tokens it is 0 in floating
    point for every row, and teaches nothing; it favours short rows before that. An empty row gets `weight`, the most.
    """
    return rewards + weight * unified(-old_logp, mask, sigma=-1, outer=lambda mean, count: (mean * count).exp())


def probability_disparity(
    rewards: Float[torch.Tensor, "B"],
    top2_margin: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    last: Count | None = None,
    weight: float = 1.0,
) -> Float[torch.Tensor, "B"]:
    """How far the likeliest token was ahead of the next.

    r′ = r + weight · meanₜ (p₁ − p₂), over the `last` trained tokens of the row, or all. RLSF, arXiv 2507.21931.

    The paper looks at the tokens of the answer alone, and ranks rows for preference optimisation. A shaper sees no
    text: `last` is how many tokens an answer takes with what follows it, so it fits where the form is fixed. Already
    sure of everything, a model gets 1 for anything. An empty row gets 0.
    """
    until_end = mask.flip(1).cumsum(1).flip(1)
    answer = mask if last is None else mask & (until_end <= last)
    return rewards + weight * unified(top2_margin, answer, sigma=1)


def _summed(mean: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return mean * count
