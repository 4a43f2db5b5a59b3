"""A LoRA layer in float32, forward and backward, without the sums that its modules make one by one.

    y = x Wᵀ + b + s u Bᵀ,    u = x Aᵀ
    ∂/∂x = g W + s v A,   ∂/∂A = s vᵀ x,   ∂/∂B = s gᵀ u,    v = g B

The small product is added while it is computed, into the large one, and both are made by the quicker of the libraries
(`products.py`). Nothing is kept for the backward pass that was not kept before, and the numbers are the same to
rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from torch.autograd.function import once_differentiable

from rlm_plugins.speed.merging import adapters, is_mergeable, is_plain
from rlm_plugins.speed.products import product


def fuse(model: Any) -> None:
    """Makes the LoRA layers of a model compute so, as long as they are plain: without dropout, DoRA, casts, …"""
    for layer in model.modules():
        if type(layer) is Linear:
            layer.__class__ = FusedLinear


class FusedLinear(Linear):  # type: ignore[misc]
    """PEFT's layer, which stays what it is to everybody else."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """(…, O) from (…, I). What is not plain float32, or has a trained base, is left to PEFT."""
        if args or kwargs or x.dtype != torch.float32 or self.base_layer.weight.requires_grad:
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        base, flat = self.base_layer, x.reshape(-1, x.shape[-1])
        weight = base.weight if isinstance(base, torch.nn.Linear) else base.weight.T  # a Conv1D holds it turned
        if is_mergeable(self) and len(names := adapters(self)) == 1:
            a, b, scale = self.lora_A[names[0]].weight, self.lora_B[names[0]].weight, self.scaling[names[0]]
            found = _Fused.apply(flat, weight, base.bias, a, b, scale)  # type: ignore[no-untyped-call]
        elif self.disable_adapters and not self.merged and is_plain(base) and not torch.is_grad_enabled():
            found = product(flat, weight, base.bias)
        else:
            return super().forward(x)  # type: ignore[no-any-return]
        return found.view(*x.shape[:-1], -1)  # type: ignore[no-any-return]


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        a: torch.Tensor,
        b: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        u = product(x, a)
        ctx.save_for_backward(x, weight, a, b, u)
        ctx.scale = scale
        return product(x, weight, bias).addmm_(u, b.T, alpha=scale)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, weight, a, b, u = ctx.saved_tensors
        g_x = g_a = g_b = None
        v = product(g, b.T)
        if ctx.needs_input_grad[0]:
            g_x = product(g, weight.T).addmm_(v, a, alpha=ctx.scale)
        if ctx.needs_input_grad[3]:
            g_a = (v.T @ x).mul_(ctx.scale)
        if ctx.needs_input_grad[4]:
            g_b = (u.T @ g).mul_(ctx.scale).T  # twice as quick as gᵀ u
        return g_x, None, None, g_a, g_b, None
