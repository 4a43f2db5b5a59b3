"""r′: certainty of the policy in its own completion (hook ``rlm_shapers``), from one forward pass before the update.

Both are a mean cross-entropy H(q, πₜ) = −Σ_v q(v) log πₜ(v) over the tokens of the completion (the survey's form, arXiv
2509.08827, eq. 6): with q uniform, less log V, and with q = πₜ and the opposite sign. Each adds `weight` · u to the
reward; for u alone, give the recipe's rewards weight 0. Neither depends on the answer's correctness: they reward
certainty. A model whose certain answers are mostly correct improves for a while. Then entropy collapses, and
exploration with it. Monitor `entropy`, keep a labelled `evaluation.metric`, use few steps, a small learning rate and a
KL penalty.
"""

from __future__ import annotations

from jaxtyping import Bool, Float

from rlm_plugins.lazy import torch


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
