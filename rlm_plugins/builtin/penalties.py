"""βΩ: what else is paid for (hook ``rlm_penalties``). Per token; the recipe gives each its ``beta``."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float

from rlm_plugins import hookimpl
from rlm_plugins.errors import RecipeError
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

    Ω = d (k1), d²/2 (k2) or exp(−d) + d − 1 (k3), with d = log π − log π_ref. Schulman, "Approximating KL divergence",
    2020; GRPO uses k3, arXiv 2402.03300 eq. 4. As a loss k1 has a gradient of zero mean: use k2 or k3. At
    logp = ref_logp value and gradient of k2 and k3 are 0.

    `importance_weighted` multiplies by w, TRL's default (`use_bias_correction_kl`); the paper does not.

    >>> kl(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), estimator="k2").item()
    2.0
    """
    estimate = kl_estimate(logp, ref_logp, estimator)
    if not importance_weighted:
        return estimate
    if ratio is None:
        raise RecipeError(
            "`importance_weighted` multiplies by a ratio that nothing computes",
            where="penalties: kl.importance_weighted",
            hint="choose an `importance`, or leave this knob off",
        )
    return estimate * ratio


def kl_old(
    logp: Float[torch.Tensor, "B T"], old_logp: Float[torch.Tensor, "B T"], *, estimator: Estimator = "k3"
) -> Float[torch.Tensor, "B T"]:
    """Distance to the policy at the start of this update: the adaptive-penalty PPO, arXiv 1707.06347 eq. 8.

    Ω = d, d²/2 or exp(−d) + d − 1, with d = log π − log π_old and the estimators called as in `kl`.
    """
    return kl_estimate(logp, old_logp, estimator)


def entropy(entropy: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """Ω = −H(π): a bonus for staying undecided, summed up like the rest of the loss.

    (TRL adds it as a token mean whatever the aggregator; verl, like us, uses the policy's own.)
    """
    return -entropy


def kl_estimate(
    logp: Float[torch.Tensor, "B T"], other: Float[torch.Tensor, "B T"], estimator: Estimator
) -> Float[torch.Tensor, "B T"]:
    """k1, k2 or k3 of log π against `other`; in k3 log-ratios beyond ±20 are clamped, with a gradient of 0."""
    if estimator == "k1":
        return logp - other
    if estimator == "k2":
        return (logp - other) ** 2 / 2

    def gap() -> torch.Tensor:
        return (other - logp).clamp(-20.0, 20.0)

    # Computed twice, because TRL does: autograd then adds the two halves of the gradient to others in TRL's order.
    return torch.exp(gap()) - gap() - 1


@hookimpl
def rlm_penalties() -> dict[str, object]:
    return {"kl": kl, "kl_old": kl_old, "entropy": entropy}
