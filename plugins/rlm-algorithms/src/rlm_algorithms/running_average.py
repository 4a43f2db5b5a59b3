"""Running average of the policy's LoRA adapter, as the product of its matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from rlm_algorithms.auxiliary_lm import adapter_config_like
from rlm_plugins.models.adapters import Adapter


def average_config(policy: Any) -> Any:
    """Return the policy's LoRA config with twice its rank and the scale 1, for products of two adapters."""
    config = adapter_config_like(policy)
    config.r, config.rank_pattern = 2 * config.r, {name: 2 * rank for name, rank in config.rank_pattern.items()}
    config.lora_alpha, config.alpha_pattern = config.r, dict(config.rank_pattern)
    config.use_rslora = False
    return config


class RunningAverage:
    """Running average of ΔW = s B A of a LoRA adapter: ΔW_T ← (1 − τ) ΔW_T + τ ΔW, of twice the rank.

    The average of A and of B is not that of B A. The sum has the rank of both, and is cut by a singular value
    decomposition to the largest values that the average can hold.

    Args:
        policy: A PEFT model.
        adapter: The average.
    """

    def __init__(self, policy: Any, adapter: Adapter) -> None:
        self._policy, self._adapter = policy, adapter

    def update(self, rate: float) -> None:
        """Take a step with τ = `rate`; 1: copy the policy's."""
        with torch.no_grad():
            for module, own, average in self._layers():
                a, b = module.lora_A[own].weight.float(), module.lora_B[own].weight.float()
                a_mean, b_mean = module.lora_A[average].weight, module.lora_B[average].weight
                left = torch.cat([(1 - rate) * b_mean.float(), rate * module.scaling[own] * b], 1)
                right = torch.cat([a_mean.float(), a])
                left, right = truncated(left, right, a_mean.shape[0])
                b_mean.copy_(left)
                a_mean.copy_(right)

    def _layers(self) -> Iterator[tuple[Any, str, str]]:
        own, name = self._policy.active_adapter, next(iter(self._adapter.weights())).split(".lora_")[1].split(".")[1]
        for module in self._policy.modules():
            if name in getattr(module, "lora_A", {}):
                yield module, own, name


def truncated(left: torch.Tensor, right: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factors (out, rank) and (rank, in) of the product `left` (out, n) · `right` (n, in), the closest ones.

    >>> left, right = truncated(torch.eye(3)[:, :2], torch.eye(3)[:2], 2)
    >>> torch.allclose(left @ right, torch.diag(torch.tensor([1.0, 1.0, 0.0])), atol=1e-6)
    True
    """
    q_left, r_left = torch.linalg.qr(left)
    q_right, r_right = torch.linalg.qr(right.T)
    u, values, v = torch.linalg.svd(r_left @ r_right.T)
    rank = min(rank, len(values))
    root = values[:rank].sqrt()
    return q_left @ (u[:, :rank] * root), (root.unsqueeze(1) * v[:rank]) @ q_right.T
