"""LoRA layers and gated MLPs in float32, forward and backward, with the adapters' products added in place.

    y = x Wᵀ + b + s u Bᵀ,    u = x Aᵀ
    ∂/∂x = g W + s v A,   ∂/∂A = s vᵀ x,   ∂/∂B = s gᵀ u,    v = g B

PEFT's layer computes two products and adds them. Here the small product accumulates into the large one, and the faster
CPU library computes both (`cpu_linear.py`). Autograd keeps the same tensors as with PEFT, and results agree up to
rounding.

A gated MLP is y = D (silu(G x) ⊙ U x), with an adapter on each of D, G, U. Autograd would keep G x, silu(G x), U x and
their product; this keeps G x and U x, and computes the other two again in place. The adapters of G and U have the same
input, so their thin products are one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from peft.tuners.lora.layer import Linear

from rlm_fast.cpu_linear import fast_linear, sum_of_products
from rlm_fast.plain_linear import LORA, adapters, is_mergeable, is_patched, is_plain, output_first
from rlm_plugins.errors import RlmError

MIN_PRODUCTS = 2**24
"""Multiplications of a call below which the checks cost more than fusing saves."""


def fuse_lora(model: Any, *, enabled: bool = True) -> None:
    """Fuse the LoRA layers of a model; a call falls back to PEFT if it is small or its layer is modified."""
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


LAYERS = ("gate_proj", "up_proj", "down_proj")
ACTIVATIONS = ("SiLU", "SiLUActivation")
"""Classes of PyTorch and transformers that compute silu."""
TOLERANCE = 1e-4
"""Largest difference of an output from that of the module, as a share of the largest output."""
_CLASSES: dict[type, type] = {}
"""Class of a gated MLP → its fused subclass."""


def fuse_mlps(model: Any, *, enabled: bool = True) -> None:
    """Fuse the gated MLPs of a model after `fuse_lora`; a call that is not supported falls back to the module."""
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
    return type(layer) in LORA and not is_patched(layer) and is_fusible(layer) and layer.base_layer.bias is None


class FusedMLP:
    """First base class of a fused gated MLP; the second one is the class of transformers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (…, D) from (…, D); the module computes small calls, other dtypes and modified layers."""
        layers = [getattr(self, name) for name in LAYERS]
        is_small = x.numel() * layers[0].out_features < MIN_PRODUCTS
        if is_small or x.dtype != torch.float32 or is_traced() or not has_fusible_layers(self):
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
