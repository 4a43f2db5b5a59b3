"""r′: certainty of the policy in its own completion (hook ``rlm_shapers``), from one forward pass before the update.

All have one form, the survey's (arXiv 2509.08827, eq. 6)::

    u = Ψ( σ/|I| · Σ_{t∈I} H(qₜ, πₜ) ),    H(q, π) = −Σ_v q(v) log π(v)

`cross_entropy` has q, σ and Ψ as knobs. `self_certainty` is (uniform, +1, x − log V), `token_entropy` is (πₜ, −1, x).
Each adds `weight` · u to the reward; for u alone, give the recipe's rewards weight 0. None of them depends on the
answer's correctness: they reward certainty. A model whose certain answers are mostly correct improves for a while. Then
entropy collapses, and exploration with it. Monitor `entropy`, keep a labelled `evaluation.metric`, use few steps, a
small learning rate and a KL penalty.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from rlm_intrinsic.answer_likelihoods import Regex
from rlm_intrinsic.answer_span import ranks, span_mask
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


def probability_disparity(
    rewards: Float[torch.Tensor, "B"],
    top2_margin: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    completion_ids: Sequence[Sequence[int]],
    tokenizer: Any,
    *,
    last: Count | None = None,
    span: Regex | None = None,
    ranked: bool = False,
    weight: float = 1.0,
) -> Float[torch.Tensor, "B"]:
    """Add the mean margin of the most likely token over the second.

    r′ = r + weight · meanₜ (p₁ − p₂), over the tokens of `span`, the `last` trained tokens, or all. RLSF, arXiv
    2507.21931: over the tokens of the answer, ``span: "<answer>(.*?)</answer>"``.

    `span` is a regular expression; its last match in the completion counts, or that of its group. With `ranked` a
    completion gets the share of its group that it exceeds, the order that the paper turns into preferences. A saturated
    model gets 1 for any completion. A completion without such tokens gets 0.
    """
    until_end = mask.flip(1).cumsum(1).flip(1)
    answer = mask if last is None else mask & (until_end <= last)
    if span is not None:
        answer = answer & span_mask(completion_ids, mask, tokenizer, span)
    margin = unified(top2_margin, answer, sigma=1)
    return rewards + weight * (ranks(margin, group).to(margin.dtype) if ranked else margin)


def cross_entropy(
    rewards: Float[torch.Tensor, "B"],
    self_certainty: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    entropy: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    completion_ids: Sequence[Sequence[int]],
    tokenizer: Any,
    *,
    q: Literal["uniform", "sample", "policy"],
    sigma: Literal[1, -1],
    psi: Literal["mean", "sum", "probability"] = "mean",
    span: Regex | None = None,
    weight: float = 1.0,
) -> Float[torch.Tensor, "B"]:
    """Add the survey's unified intrinsic reward, with its three choices as knobs.

    r′ = r + weight · Ψ( σ/|I| Σ_{t∈I} H(qₜ, πₜ) ), arXiv 2509.08827 eq. 6. `q`: the uniform distribution (less log V,
    so the term is KL(U ‖ π)), the sampled token, or the policy itself. `sigma` is σ. `psi` is Ψ: x, |I| · x, or
    exp(|I| · x). I are the trained tokens, or those of `span` (a regular expression, as for `probability_disparity`).

    `self_certainty` is (uniform, 1, mean) and `token_entropy` (policy, −1, mean). (sample, −1) is the log-likelihood,
    mean or sum (EM-RL, arXiv 2505.15134); its sum rewards brevity, its mean padding with certain tokens. (sample, −1,
    probability) is Πₜ π(yₜ) (RLSC, arXiv 2506.06395), whose advantages vanish for completions less likely than 1e-4,
    with a warning; the algorithm `rlsc` has the paper's own loss. The opposite σ rewards uncertainty. An empty I gives
    Ψ(0).
    """
    tokens = mask if span is None else span_mask(completion_ids, mask, tokenizer, span)
    terms = {"uniform": self_certainty, "sample": -old_logp, "policy": entropy}
    outer: dict[str, Outer | None] = {
        "mean": None,
        "sum": _times_count,
        "probability": lambda mean, count: (mean * count).clamp(max=20.0).exp(),
    }
    value = unified(terms[q], tokens, sigma=sigma, outer=outer[psi])
    if psi == "probability" and value.where(tokens.any(1), 0.0).max() < VANISHING:
        warnings.warn(
            f"cross_entropy: no completion has a probability above {VANISHING:g}; advantages are about 0; "
            "`algorithm: rlsc` has the loss of the paper, which does not vanish",
            stacklevel=2,
        )
    return rewards + weight * value


def _times_count(mean: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return mean * count
