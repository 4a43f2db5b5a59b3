"""How far apart two policies are, estimated from the tokens that one of them sampled."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float

from rlm_plugins.lazy import torch

Estimator = Literal["k1", "k2", "k3", "abs"]


def kl_estimate(
    logp: Float[torch.Tensor, "B T"], other: Float[torch.Tensor, "B T"], estimator: Estimator
) -> Float[torch.Tensor, "B T"]:
    """k1, k2, k3 or |d| of log π against `other`; in k3 log-ratios beyond ±20 are clamped, with a gradient of 0."""
    if estimator == "k1":
        return logp - other
    if estimator == "k2":
        return (logp - other) ** 2 / 2
    if estimator == "abs":
        return (logp - other).abs()

    def gap() -> torch.Tensor:
        return (other - logp).clamp(-20.0, 20.0)

    # Computed twice, because TRL does: autograd then adds the two halves of the gradient to others in TRL's order.
    return torch.exp(gap()) - gap() - 1
