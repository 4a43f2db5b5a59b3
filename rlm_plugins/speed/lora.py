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
from transformers.pytorch_utils import Conv1D

from rlm_plugins.errors import RlmError
from rlm_plugins.speed.products import product

SMALL = 2**24
"""Products of two numbers in a call: with fewer, what it takes to ask is more than what is saved."""


def fuse(model: Any) -> None:
    """Makes the LoRA layers of a model compute so, while they are plain (no dropout, DoRA, casts, …) and read much."""
    for layer in model.modules():
        if type(layer) is Linear:
            layer.__class__ = FusedLinear


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
            raise RlmError("a fused LoRA layer has no second derivative", hint="say `speed: {fuse: false}`")
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


def is_mergeable(layer: Any) -> bool:
    """Whether a module is a plain LoRA layer that does nothing at this moment but add its product."""
    if type(layer) not in (Linear, FusedLinear) or layer.disable_adapters or layer.merged or "forward" in vars(layer):
        return False
    active = adapters(layer)
    odd = any(name in layer.lora_variant or layer.lora_bias[name] or _is_odd(layer, name) for name in active)
    base = layer.base_layer
    return (
        bool(active) and not odd and is_plain(base) and all(_is_float(x) for x in (base.weight, *_sides(layer, active)))
    )


def adapters(layer: Any) -> list[str]:
    """Those of a LoRA layer that are on."""
    return [name for name in layer.active_adapters if name in layer.lora_A]


def _is_odd(layer: Any, name: str) -> bool:
    dropout = layer.lora_dropout[name]
    drops = dropout.training and not isinstance(dropout, torch.nn.Identity)
    return drops or any(_is_watched(it[name]) for it in (layer.lora_dropout, layer.lora_A, layer.lora_B))


def is_plain(layer: Any) -> bool:
    """Whether it is a linear layer as it was made: not quantised, not surrounded by anything."""
    return type(layer) in (torch.nn.Linear, Conv1D) and not _is_watched(layer)


def _is_watched(module: Any) -> bool:
    forward = module._forward_pre_hooks or module._forward_hooks or "forward" in vars(module)
    return bool(forward or module._backward_pre_hooks or module._backward_hooks)


def upright(base: Any, weight: torch.Tensor) -> torch.Tensor:
    """(O, I) of the weight of a plain layer, as that holds it: a Conv1D has (I, O)."""
    return weight if isinstance(base, torch.nn.Linear) else weight.T


def _sides(layer: Any, active: list[str]) -> list[torch.Tensor]:
    return [side[name].weight for side in (layer.lora_A, layer.lora_B) for name in active]


def _is_float(x: torch.Tensor) -> bool:
    casts = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
    return x.dtype == torch.float32 and not casts
