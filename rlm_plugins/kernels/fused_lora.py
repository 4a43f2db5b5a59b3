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

from rlm_plugins.errors import RlmError
from rlm_plugins.kernels.cpu_linear import product
from rlm_plugins.kernels.plain_linear import LORA, adapters, is_mergeable, is_plain, upright

SMALL = 2**24
"""Products of two numbers in a call: with fewer, what it takes to ask is more than what is saved."""


def fuse(model: Any, *, on: bool = True) -> None:
    """Makes the LoRA layers of a model compute so, while they are plain (no dropout, DoRA, casts, …) and read much.

    Args:
        model: Any.
        on: Else those that somebody else has fused compute as PEFT has it again.
    """
    for layer in model.modules():
        if type(layer) in (Linear, FusedLinear):
            layer.__class__ = FusedLinear if on else Linear


class FusedLinear(Linear):  # type: ignore[misc]
    """PEFT's layer, which stays what it is to everybody else."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """(…, O) from (…, I). What is small, not plain float32, or has a trained base, is left to PEFT."""
        few = x.numel() * self.out_features < SMALL
        if few or args or kwargs or x.dtype != torch.float32 or _is_traced():
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        base, found = self.base_layer, None
        weight, flat = upright(base, base.weight), x.reshape(-1, x.shape[-1])
        if is_fusible(self):
            (name,) = adapters(self)
            a, b, scale = self.lora_A[name].weight, self.lora_B[name].weight, self.scaling[name]
            found = _Fused.apply(flat, weight, base.bias, a, b, scale)  # type: ignore[no-untyped-call]
        elif self.disable_adapters and not self.merged and is_plain(base) and not torch.is_grad_enabled():
            found = product(flat, weight, base.bias)
        return super().forward(x) if found is None else found.view(*x.shape[:-1], found.shape[-1])  # type: ignore[no-any-return]


LORA.add(FusedLinear)


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
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        if torch.is_grad_enabled():  # else torch would leave these terms out where it is asked for some gradients only
            raise RlmError("a fused LoRA layer has no second derivative", hint="say `speed: {fused_lora: false}`")
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


def _is_traced() -> bool:
    """Whether torch rewrites what is called: torch.compile, torch.func."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def is_fusible(layer: Any) -> bool:
    """Whether a LoRA layer is computed as one product at this moment, in float32."""
    trained = any(x.requires_grad for x in layer.base_layer.parameters())
    return is_mergeable(layer) and len(adapters(layer)) == 1 and not trained
