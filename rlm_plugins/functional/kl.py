"""Estimators of the KL divergence of two policies, from tokens sampled by one of them."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float

from rlm_plugins.lazy import torch

Estimator = Literal["k1", "k2", "k3", "abs"]


def kl_estimate(
    logp: Float[torch.Tensor, "B T"], other: Float[torch.Tensor, "B T"], estimator: Estimator
) -> Float[torch.Tensor, "B T"]:
    """Return k1, k2, k3 or |d| of log π against `other`; k3 clamps log-ratios at ±20, with zero gradient beyond."""
    if estimator == "k1":
        return logp - other
    if estimator == "k2":
        return (logp - other) ** 2 / 2
    if estimator == "abs":
        return (logp - other).abs()

    def gap() -> torch.Tensor:
        return (other - logp).clamp(-20.0, 20.0)

    # Computed twice, as in TRL: autograd then accumulates the two halves of the gradient in TRL's order.
    return torch.exp(gap()) - gap() - 1
