"""LoRA layer in float32, forward and backward, with the adapter's product added inside that of the base.

    y = x Wᵀ + b + s u Bᵀ,    u = x Aᵀ
    ∂/∂x = g W + s v A,   ∂/∂A = s vᵀ x,   ∂/∂B = s gᵀ u,    v = g B

PEFT's layer computes two products and adds them. Here the small product accumulates into the large one, and the faster
CPU library computes both (`cpu_linear.py`). Autograd keeps the same tensors as with PEFT, and results agree up to
rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.layer import Linear

from rlm_fast.cpu_linear import fast_linear, sum_of_products
from rlm_fast.plain_linear import LORA, adapters, is_mergeable, is_plain, output_first
from rlm_plugins.errors import RlmError

MIN_PRODUCTS = 2**24
"""Multiplications of a call below which the checks cost more than fusing saves."""


def fuse_lora(model: Any, *, enabled: bool = True) -> None:
    """Fuse the LoRA layers of a model; a call falls back to PEFT if it is small or its layer is modified.

    Args:
        model: Any module.
        enabled: False restores PEFT's layers.
    """
    for layer in model.modules():
        if type(layer) in (Linear, FusedLinear):
            layer.__class__ = FusedLinear if enabled else Linear


class FusedLinear(Linear):  # type: ignore[misc]
    """LoRA layer of PEFT with a fused forward and backward pass."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return (…, O) from (…, I); PEFT computes small calls, other dtypes and layers with a trained base."""
        is_small = x.numel() * self.out_features < MIN_PRODUCTS
        if is_small or args or kwargs or x.dtype != torch.float32 or is_traced():
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        base, output = self.base_layer, None
        weight, flat = output_first(base, base.weight), x.reshape(-1, x.shape[-1])
        if is_fusible(self):
            (name,) = adapters(self)
            a, b, scale = self.lora_A[name].weight, self.lora_B[name].weight, self.scaling[name]
            output = _Fused.apply(flat, weight, base.bias, a, b, scale)  # type: ignore[no-untyped-call]
        # The reference pass: adapters are off, and nothing needs a gradient.
        elif self.disable_adapters and not self.merged and is_plain(base) and not torch.is_grad_enabled():
            output = fast_linear(flat, weight, base.bias)
        if output is None:
            return super().forward(x)  # type: ignore[no-any-return]
        return output.view(*x.shape[:-1], output.shape[-1])  # type: ignore[no-any-return]


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
        u = fast_linear(x, a)
        ctx.save_for_backward(x, weight, a, b, u)
        ctx.scale = scale
        return fast_linear(x, weight, bias).addmm_(u, b.T, alpha=scale)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        if torch.is_grad_enabled():  # PyTorch would silently leave these terms out of a second derivative
            raise RlmError("second derivatives require PEFT's LoRA layers", hint="set `speed: {fused_lora: false}`")
        x, weight, a, b, u = ctx.saved_tensors
        g_x = g_a = g_b = None
        v = fast_linear(g, b.T)
        if ctx.needs_input_grad[0]:
            g_x = fast_linear(g, weight.T).addmm_(v, a, alpha=ctx.scale)
        if ctx.needs_input_grad[3]:
            g_a = sum_of_products(v, x).mul_(ctx.scale)
        if ctx.needs_input_grad[4]:
            g_b = sum_of_products(u, g).mul_(ctx.scale).T  # twice as fast as gᵀ u
        return g_x, None, None, g_a, g_b, None


def is_traced() -> bool:
    """Return True under `torch.compile` or `torch.func`, which trace or transform calls."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def is_fusible(layer: Any) -> bool:
    """Return True if a LoRA layer has one mergeable adapter, a frozen base, and computes in float32."""
    trained = any(x.requires_grad for x in layer.base_layer.parameters())
    return is_mergeable(layer) and len(adapters(layer)) == 1 and not trained
