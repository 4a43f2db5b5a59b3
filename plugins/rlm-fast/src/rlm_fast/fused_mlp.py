"""Gated MLP with LoRA in float32, forward and backward: y = D (silu(G x) ⊙ U x).

Each of D, G, U is a frozen weight with an adapter, as in `fused_lora.py`. Autograd would keep G x, silu(G x), U x and
their product; this keeps G x and U x, and computes the other two again in place. The adapters of G and U have the same
input, so their thin products are one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from rlm_fast import fused_lora
from rlm_fast.cpu_linear import fast_linear, sum_of_products
from rlm_fast.plain_linear import LORA, adapters, is_patched, output_first
from rlm_plugins.errors import RlmError

LAYERS = ("gate_proj", "up_proj", "down_proj")
ACTIVATIONS = ("SiLU", "SiLUActivation")
"""Classes of PyTorch and transformers that compute silu."""
TOLERANCE = 1e-4
"""Largest difference of an output from that of the module, as a share of the largest output."""
_CLASSES: dict[type, type] = {}
"""Class of a gated MLP → its fused subclass."""


def fuse_mlps(model: Any, *, enabled: bool = True) -> None:
    """Fuse the gated MLPs of a model after `fuse_lora`; a call that is not supported falls back to the module.

    Args:
        model: Any module.
        enabled: False restores the modules.
    """
    for module in model.modules():
        if enabled and not isinstance(module, FusedMLP) and has_fusible_layers(module) and _matches_fused(module):
            module.__class__ = _fused_class(type(module))
        elif not enabled and isinstance(module, FusedMLP):
            module.__class__ = type(module).__mro__[2]


def has_fusible_layers(module: Any) -> bool:
    """Return True if a module has the layers of a gated MLP and no others, each with one adapter, unmodified."""
    children = dict(module.named_children())
    if children.keys() != {*LAYERS, "act_fn"} or module._parameters or "forward" in vars(module):
        return False
    is_silu = type(children["act_fn"]).__name__ in ACTIVATIONS
    return is_silu and all(_is_fusible(layer) for layer in children.values() if layer is not children["act_fn"])


def _is_fusible(layer: Any) -> bool:
    return (
        type(layer) in LORA and not is_patched(layer) and fused_lora.is_fusible(layer) and layer.base_layer.bias is None
    )


class FusedMLP:
    """First base class of a fused gated MLP; the second one is the class of transformers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (…, D) from (…, D); the module computes small calls, other dtypes and modified layers."""
        layers = [getattr(self, name) for name in LAYERS]
        is_small = x.numel() * layers[0].out_features < fused_lora.MIN_PRODUCTS
        if is_small or x.dtype != torch.float32 or fused_lora.is_traced() or not has_fusible_layers(self):
            return super().forward(x)  # type: ignore[misc,no-any-return]
        return _call(layers, x)


def _call(layers: list[Any], x: torch.Tensor) -> torch.Tensor:
    inputs: list[Any] = []
    for layer in layers:
        (name,) = adapters(layer)
        weight = output_first(layer.base_layer, layer.base_layer.weight)
        inputs += [weight, layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name]]
    output = _Gated.apply(x.reshape(-1, x.shape[-1]), *inputs)  # type: ignore[no-untyped-call]
    return output.view(*x.shape[:-1], output.shape[-1])  # type: ignore[no-any-return]


def _fused_class(module: type) -> type:
    """Return the fused class of a class of MLPs, the same at each call."""
    return _CLASSES.setdefault(module, type(f"Fused{module.__name__}", (FusedMLP, module), {}))


@torch.no_grad()
def _matches_fused(module: Any) -> bool:
    """Return True if the module computes the gated MLP: any class may have layers of these names."""
    weight = module.gate_proj.base_layer.weight
    if weight.is_meta or weight.dtype != torch.float32:
        return False
    x = torch.linspace(-1, 1, 2 * module.gate_proj.in_features, device=weight.device).cos().view(2, -1)
    expected, actual = module(x), _call([getattr(module, name) for name in LAYERS], x)
    return bool((actual - expected).abs().max() <= TOLERANCE * expected.abs().max())


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *layers: Any) -> torch.Tensor:  # type: ignore[override]
        gate_w, gate_a, gate_b, gate_s, up_w, up_a, up_b, up_s, down_w, down_a, down_b, down_s = layers
        u = fast_linear(x, torch.cat([gate_a, up_a]))
        u_gate, u_up = u.split([len(gate_a), len(up_a)], 1)
        gate = fast_linear(x, gate_w).addmm_(u_gate, gate_b.T, alpha=gate_s)
        up = fast_linear(x, up_w).addmm_(u_up, up_b.T, alpha=up_s)
        h = F.silu(gate).mul_(up)
        u_down = fast_linear(h, down_a)
        ctx.save_for_backward(x, gate, up, u, u_down, *(y for y in layers if isinstance(y, torch.Tensor)))
        ctx.scales = gate_s, up_s, down_s
        return fast_linear(h, down_w).addmm_(u_down, down_b.T, alpha=down_s)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        if torch.is_grad_enabled():  # PyTorch would silently leave these terms out of a second derivative
            raise RlmError("second derivatives require PEFT's LoRA layers", hint="set `speed: {fused_lora: false}`")
        x, gate, up, u, u_down, gate_w, gate_a, gate_b, up_w, up_a, up_b, down_w, down_a, down_b = ctx.saved_tensors
        gate_s, up_s, down_s = ctx.scales
        ranks = [len(gate_a), len(up_a)]
        v = fast_linear(g, down_b.T).mul_(down_s)
        g_up = F.silu(gate)
        h = g_up * up
        g_down_a, g_down_b = sum_of_products(v, h), sum_of_products(u_down, g).mul_(down_s).T
        del h
        g_gate = fast_linear(g, down_w.T).addmm_(v, down_a)  # the gradient of h, for two lines
        g_up.mul_(g_gate)
        torch.ops.aten.silu_backward.grad_input(g_gate.mul_(up), gate, grad_input=g_gate)
        v = torch.cat([fast_linear(g_gate, gate_b.T).mul_(gate_s), fast_linear(g_up, up_b.T).mul_(up_s)], 1)
        g_gate_a, g_up_a = sum_of_products(v, x).split(ranks)
        u_gate, u_up = u.split(ranks, 1)
        g_gate_b = sum_of_products(u_gate, g_gate).mul_(gate_s).T
        g_up_b = sum_of_products(u_up, g_up).mul_(up_s).T
        g_x = None
        if ctx.needs_input_grad[0]:
            g_x = fast_linear(g_gate, gate_w.T).add_(fast_linear(g_up, up_w.T)).addmm_(v, torch.cat([gate_a, up_a]))
        gate_grads, up_grads = (None, g_gate_a, g_gate_b, None), (None, g_up_a, g_up_b, None)
        return g_x, *gate_grads, *up_grads, None, g_down_a, g_down_b, None
