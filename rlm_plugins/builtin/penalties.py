"""βΩ: penalties and bonuses (hook ``rlm_penalties``). Per token; the recipe gives each its ``beta``."""

from __future__ import annotations

from typing import Annotated

from jaxtyping import Float, Int
from pydantic import Field, PositiveFloat

from rlm_plugins import hookimpl
from rlm_plugins.batch import Batch
from rlm_plugins.builtin.adaptive_coefficients import AdaptiveEntropy, AdaptiveKL
from rlm_plugins.builtin.imitation_losses import nll, policy_shaping
from rlm_plugins.builtin.value_estimation import value_loss
from rlm_plugins.errors import RecipeError
from rlm_plugins.functional.covariance import covariance, token_count, top_mask
from rlm_plugins.functional.kl import Estimator, kl_estimate
from rlm_plugins.lazy import torch

Share = Annotated[float, Field(ge=0, le=1)]


def kl(
    logp: Float[torch.Tensor, "B T"],
    ref_logp: Float[torch.Tensor, "B T"],
    ratio: Float[torch.Tensor, "B #T"] | None = None,
    *,
    estimator: Estimator = "k3",
    importance_weighted: bool = False,
    straight_through: bool = False,
    bound: PositiveFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """KL divergence from the frozen reference policy, estimated from the sampled tokens.

    Ω = d (k1), d²/2 (k2), exp(−d) + d − 1 (k3) or |d| (abs), with d = log π − log π_ref. Schulman, "Approximating KL
    divergence", 2020; GRPO uses k3, arXiv 2402.03300 eq. 4. As a loss k1 has a gradient of zero mean: use k2 or k3. At
    logp = ref_logp value and gradient of k2 and k3 are 0.

    `straight_through` keeps the value and takes the gradient of k2, the only one whose mean is that of the divergence
    (verl's `k1+`, `k3+`; OpenRLHF's `unbiased_gradient`, which weights that gradient by w).

    `importance_weighted` multiplies by w, TRL's default (`use_bias_correction_kl`); the paper does not. `bound` clamps
    the estimate, with zero gradient beyond (±10: verl for k3, OpenRLHF for k1 to k3).

    >>> kl(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), estimator="k2").item()
    2.0
    """
    estimate = kl_estimate(logp, ref_logp, estimator)
    if bound is not None:
        estimate = estimate.clamp(-bound, bound)
    if straight_through:
        unbiased = kl_estimate(logp, ref_logp, "k2")
        estimate = estimate.detach() + (unbiased - unbiased.detach())
    if not importance_weighted:
        return estimate
    if ratio is None:
        raise RecipeError(
            "`importance_weighted` requires `ratio`, which this configuration does not provide",
            where="penalties: kl.importance_weighted",
            hint="choose an `importance`, or leave this knob off",
        )
    return estimate * ratio


def kl_old(
    logp: Float[torch.Tensor, "B T"], old_logp: Float[torch.Tensor, "B T"], *, estimator: Estimator = "k3"
) -> Float[torch.Tensor, "B T"]:
    """KL divergence from the policy at the start of this update: PPO with KL penalty, arXiv 1707.06347 eq. 8.

    Ω = d, d²/2, exp(−d) + d − 1 or |d|, with d = log π − log π_old and the estimator names of `kl`.
    """
    return kl_estimate(logp, old_logp, estimator)


def kl_cov(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    step_batch: Batch,
    step_batch_rows: Int[torch.Tensor, "B"],
    *,
    share: Share = 2e-3,
) -> Float[torch.Tensor, "B T"]:
    """KL penalty to the old policy on the few tokens that would reduce the entropy most (KL-Cov).

    Ω = |log π − log π_old| for the share · N tokens, one at least, with the largest (log π − mean)(Â − mean), 0 for the
    rest. KL-Cov, arXiv 2505.22617: `share` 2e-3 for its 7B model, 2e-4 for 32B, beta 1, no clip (policy loss
    `unclipped`).

    Means, N (the number of trained tokens) and the selection are over the complete optimizer step, however it is split
    (the libraries use each micro-batch). If all its advantages are equal, the covariance and the penalty are 0. Ties
    are selected together. On policy value and gradient are 0.

    >>> mask, advantages = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[1.0, 0.0, -1.0]])
    >>> logp, old = torch.tensor([[-1.0, -2.0, -6.0]]), torch.tensor([[-1.5, -2.5, -6.5]])
    >>> kl_cov(logp, old, Batch(logp=logp, advantages=advantages, mask=mask), torch.tensor([0])).tolist()
    [[0.0, 0.0, 0.5]]
    """
    cov = covariance(step_batch.logp, step_batch.advantages, step_batch.mask)
    selected = top_mask(cov, token_count(step_batch.mask, share)) & (cov != 0)
    return kl_estimate(logp, old_logp, "abs").where(selected[step_batch_rows, : logp.shape[1]], 0.0)


def entropy(entropy: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """Ω = −H(π): an entropy bonus, aggregated like the rest of the loss.

    (TRL adds its token mean, whatever the aggregator: `aggregator: micro_batch_token_mean` beside `beta`. verl uses the
    aggregator of the policy loss.)
    """
    return -entropy


@hookimpl
def rlm_penalties() -> dict[str, object]:
    return {
        "kl": kl,
        "kl_old": kl_old,
        "kl_cov": kl_cov,
        "entropy": entropy,
        "value_loss": value_loss,
        "nll": nll,
        "policy_shaping": policy_shaping,
        "adaptive_kl": AdaptiveKL,
        "adaptive_entropy": AdaptiveEntropy,
    }
