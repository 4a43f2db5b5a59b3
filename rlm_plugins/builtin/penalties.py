"""βΩ: what else is paid for (hook ``rlm_penalties``). Per token; the recipe gives each its ``beta``."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float

from rlm_plugins import hookimpl
from rlm_plugins.lazy import torch

Estimator = Literal["k1", "k2", "k3"]


def kl(
    logp: Float[torch.Tensor, "B T"],
    ref_logp: Float[torch.Tensor, "B T"],
    ratio: Float[torch.Tensor, "B #T"] | None = None,
    *,
    estimator: Estimator = "k3",
    importance_weighted: bool = False,
) -> Float[torch.Tensor, "B T"]:
    """Distance to the frozen reference policy, estimated from the sampled tokens.

    With d = log π − log π_ref: k1 = d, k2 = d²/2, k3 = exp(−d) + d − 1 (Schulman, "Approximating KL divergence",
    2020; GRPO uses k3, arXiv 2402.03300 eq. 4). As a loss k1 has a gradient of zero mean: use k2 or k3. At
    logp = ref_logp value and gradient of k2 and k3 are 0.

    `importance_weighted` multiplies by w, TRL's default (`use_bias_correction_kl`); the paper does not.
    """
    estimate = kl_estimate(logp, ref_logp, estimator)
    return estimate * ratio if importance_weighted and ratio is not None else estimate


def kl_old(
    logp: Float[torch.Tensor, "B T"], old_logp: Float[torch.Tensor, "B T"], *, estimator: Estimator = "k3"
) -> Float[torch.Tensor, "B T"]:
    """Distance to the policy at the start of this update: the adaptive-penalty PPO, arXiv 1707.06347 eq. 8."""
    return kl_estimate(logp, old_logp, estimator)


def entropy(entropy: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """Ω = −H(π): a bonus for staying undecided, summed up like the rest of the loss.

    (TRL adds it as a token mean whatever the aggregator; verl, like us, uses the policy's own.)
    """
    return -entropy


def kl_estimate(
    logp: Float[torch.Tensor, "B T"], other: Float[torch.Tensor, "B T"], estimator: Estimator
) -> Float[torch.Tensor, "B T"]:
    """k1, k2 or k3 of log π against `other`; log-ratios beyond ±20 are clamped before exp."""
    difference = logp - other
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return difference**2 / 2
    gap = (other - logp).clamp(-20.0, 20.0)
    return torch.exp(gap) - gap - 1


@hookimpl
def rlm_penalties() -> dict[str, object]:
    return {"kl": kl, "kl_old": kl_old, "entropy": entropy}
