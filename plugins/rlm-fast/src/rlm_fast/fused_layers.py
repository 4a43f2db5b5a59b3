"""Fused log-prob head: log π(y) and entropy from hidden states, with few logits in memory at a time.

The logits of a chunk are needed for the value, for its gradient in h and, if the head is trained, for that in W. The
gradient in h is computed in the forward pass, while the logits are in memory::

    z = (W h + b) / τ        log π(y) = log softmax(z)[y]     ∂/∂h = ((1 − p_y) W[y] − Σ_{v≠y} p_v W[v]) / τ
                             H = −Σ_v p_v log p_v             ∂/∂h = −Σ_v p_v (log p_v + H) W[v] / τ

so the backward pass neither keeps nor recomputes logits. Only a trained head recomputes them, chunk by chunk. Under
autocast only the products use its dtype, forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, Int
from peft.tuners.lora.layer import Linear

from rlm_fast.linear_layers import (
    LORA,
    adapters,
    chunk_tokens,
    fast_linear,
    is_patched,
    is_plain,
    is_sum,
    output_first,
    product_dtype,
    sum_of_products,
)
from rlm_plugins.errors import RlmError


def fused_logprobs(
    hidden: Float[torch.Tensor, "N H"],
    weight: Float[torch.Tensor, "V H"],
    bias: Float[torch.Tensor, "V"] | None,  # noqa: F821
    target: Int[torch.Tensor, "N"],  # noqa: F821
    *,
    temperature: float = 1.0,
    with_entropy: bool = True,
    entropy_gradient: bool = False,
) -> tuple[Float[torch.Tensor, "N"], Float[torch.Tensor, "N"]]:  # noqa: F821
    """Return the log-prob of each target and the entropy of its distribution (nats, float32)."""
    options = with_entropy or entropy_gradient, entropy_gradient
    logp, entropy = _FusedLogprobs.apply(hidden, weight, bias, target, temperature, *options)  # type: ignore[no-untyped-call]
    return logp, entropy if entropy_gradient else entropy.detach()


class _FusedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        target: torch.Tensor,
        temperature: float,
        with_entropy: bool,
        entropy_gradient: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = hidden, weight, bias
        device_type = hidden.device.type
        ctx.dtype = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else hidden.dtype
        hidden, weight, bias = _cast(ctx.dtype, *inputs)
        logp = torch.empty(len(hidden), device=hidden.device)
        entropy = torch.zeros_like(logp)
        needs_grad = ctx.needs_input_grad[0]
        grad_logp = torch.empty_like(hidden, dtype=torch.float32) if needs_grad else None
        grad_entropy = torch.empty_like(hidden, dtype=torch.float32) if needs_grad and entropy_gradient else None
        buffer = torch.empty(0, device=hidden.device, dtype=torch.float32)
        for chunk in chunks(hidden, weight):
            y = target[chunk].unsqueeze(1)
            p, z, top = _distribution(hidden[chunk], weight, bias, temperature, buffer)
            logp[chunk] = (z.gather(1, y) + top).squeeze(1)
            if with_entropy:
                entropy[chunk] = -(p * z).sum(-1) - top.squeeze(1)
            if grad_entropy is not None:
                tilted = (z + (top + entropy[chunk].unsqueeze(1))).mul_(p).to(weight.dtype)
                grad_entropy[chunk] = fast_linear(tilted, weight.T) / -temperature
                del tilted
            if grad_logp is not None:
                # The probability of all other tokens is their sum: 1 − p_y of a likely token would be rounding only.
                p_others = p.scatter_(1, y, 0.0)
                towards_target = p_others.sum(-1, keepdim=True) * weight[y.squeeze(1)]
                towards_others = fast_linear(p_others.to(weight.dtype), weight.T)
                grad_logp[chunk] = (towards_target - towards_others) / temperature
            del z  # else two chunks would be in memory
        ctx.temperature, ctx.entropy_gradient = temperature, entropy_gradient
        ctx.save_for_backward(*inputs, target, grad_logp, grad_entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, g_logp: torch.Tensor, g_entropy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        hidden, weight, bias, target, grad_logp, grad_entropy = ctx.saved_tensors
        g_hidden = None
        if grad_logp is not None:
            g_hidden = grad_logp * g_logp.unsqueeze(1)
        if grad_entropy is not None:
            g_hidden = g_hidden + grad_entropy * g_entropy.unsqueeze(1)
        g_hidden = None if g_hidden is None else g_hidden.to(hidden.dtype)
        if not any(ctx.needs_input_grad[1:3]):
            return g_hidden, *[None] * 6
        h, w, b = _cast(ctx.dtype, hidden, weight, bias)
        g_weight = torch.zeros_like(weight, dtype=torch.float32)
        g_bias = torch.zeros(len(weight), device=weight.device)
        buffer = torch.empty(0, device=hidden.device, dtype=torch.float32)
        for chunk in chunks(h, w):
            p, z, _ = _distribution(h[chunk], w, b, ctx.temperature, buffer)
            g_z = p * -g_logp[chunk].unsqueeze(1)
            g_z.scatter_add_(1, target[chunk].unsqueeze(1), g_logp[chunk].unsqueeze(1))
            if ctx.entropy_gradient:
                g_z -= g_entropy[chunk].unsqueeze(1) * p * (z - (p * z).sum(-1, keepdim=True))
            g_z /= ctx.temperature
            g_bias += g_z.sum(0)
            del z
            g_weight += (g_z.to(h.dtype).T @ h[chunk]).float()
            del g_z
        return g_hidden, g_weight.to(weight.dtype), None if bias is None else g_bias.to(bias.dtype), *[None] * 4


def _cast(dtype: torch.dtype, *tensors: torch.Tensor | None) -> list[Any]:
    """Cast once for all chunks; autocast would cast the weight again for each of them."""
    return [None if x is None else x.to(dtype) for x in tensors]


def _distribution(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, temperature: float, buffer: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return p (N, V) and log p as a sum: logits minus their maximum (N, V), and log p of the maximum (N, 1).

    p is written to `buffer`, which all chunks share: new memory costs time.
    """
    z = fast_linear(hidden, weight, bias).float()
    z = z if temperature == 1.0 else z.div_(temperature)
    z -= z.amax(-1, keepdim=True)
    p = torch.softmax(z, -1, out=buffer.resize_(z.shape))
    return p, z, p.amax(-1, keepdim=True).log()


def chunks(hidden: torch.Tensor, weight: torch.Tensor) -> Iterator[slice]:
    """Return slices of the hidden states of about equal size, whose logits may be in memory at a time."""
    size = chunk_tokens(len(hidden), len(weight), gpu=hidden.is_cuda)
    return (slice(first, first + size) for first in range(0, len(hidden), size or 1))


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
        if is_small or args or kwargs or is_traced():
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
        ctx.save_for_backward(x_a := x.to(product_dtype(a)), weight, a, b, u := fast_linear(x_a, a.to(x_a.dtype)))
        ctx.scale, ctx.dtype = scale, x.dtype
        x, weight, bias = _cast(product_dtype(weight), x, weight, bias)
        return _plus(fast_linear(x, weight, bias), u, b.T, scale)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        if torch.is_grad_enabled():  # PyTorch would silently leave these terms out of a second derivative
            raise RlmError("second derivatives require PEFT's LoRA layers", hint="set `speed: {fused_lora: false}`")
        x, weight, a, b, u = ctx.saved_tensors
        g_x = g_a = g_b = None
        h, b = _cast(u.dtype, g, b)
        v = fast_linear(h, b.T)
        if ctx.needs_input_grad[0]:
            g_x = _plus(fast_linear(g, weight.to(g.dtype).T), v, a, ctx.scale).to(ctx.dtype)
        if ctx.needs_input_grad[3]:
            g_a = sum_of_products(v, x).mul_(ctx.scale)
        if ctx.needs_input_grad[4]:
            g_b = sum_of_products(u, h).mul_(ctx.scale).T  # twice as fast as gᵀ u
        return g_x, None, None, g_a, g_b, None


def _plus(y: torch.Tensor, u: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    """Return y + scale · u b in the dtype of y, computed in that of u; may overwrite y."""
    return y.to(u.dtype).addmm_(u, b.to(u.dtype), alpha=scale).to(y.dtype)


def is_traced() -> bool:
    """Return True under `torch.compile` or `torch.func`, which trace or transform calls."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def is_fusible(layer: Any) -> bool:
    """Return True if a LoRA layer has one adapter that is a sum of products, and a frozen base."""
    trained = any(x.requires_grad for x in layer.base_layer.parameters())
    return is_sum(layer) and len(adapters(layer)) == 1 and not trained


LAYERS = ("gate_proj", "up_proj", "down_proj")
ACTIVATIONS = ("SiLU", "SiLUActivation")
"""Classes of PyTorch and transformers that compute silu."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2**-5}
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
        if is_small or is_traced() or not has_fusible_layers(self):
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
    if weight.is_meta:
        return False
    x = torch.linspace(-1, 1, 2 * module.gate_proj.in_features, device=weight.device).cos().view(2, -1).to(weight.dtype)
    expected, actual = module(x), _call([getattr(module, name) for name in LAYERS], x)
    return bool((actual - expected).abs().max() <= TOLERANCE[weight.dtype] * expected.abs().max())


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *layers: Any) -> torch.Tensor:  # type: ignore[override]
        gate_w, gate_a, gate_b, gate_s, up_w, up_a, up_b, up_s, down_w, down_a, down_b, down_s = layers
        dtype, inner = product_dtype(gate_w), product_dtype(gate_a)
        ctx.scales, ctx.dtype = (gate_s, up_s, down_s), x.dtype
        x, x_a = x.to(dtype), x.to(inner)
        u = fast_linear(x_a, torch.cat([gate_a, up_a]).to(inner))
        u_gate, u_up = u.split([len(gate_a), len(up_a)], 1)
        gate = _plus(fast_linear(x, gate_w.to(dtype)), u_gate, gate_b.T, gate_s)
        up = _plus(fast_linear(x, up_w.to(dtype)), u_up, up_b.T, up_s)
        h = F.silu(gate).mul_(up)
        u_down = fast_linear(h.to(inner), down_a.to(inner))
        ctx.save_for_backward(x_a, gate, up, u, u_down, *(y for y in layers if isinstance(y, torch.Tensor)))
        return _plus(fast_linear(h, down_w.to(dtype)), u_down, down_b.T, down_s)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        if torch.is_grad_enabled():  # PyTorch would silently leave these terms out of a second derivative
            raise RlmError("second derivatives require PEFT's LoRA layers", hint="set `speed: {fused_lora: false}`")
        x, gate, up, u, u_down, gate_w, gate_a, gate_b, up_w, up_a, up_b, down_w, down_a, down_b = ctx.saved_tensors
        gate_s, up_s, down_s = ctx.scales
        gate_w, up_w, down_w = _cast(g.dtype, gate_w, up_w, down_w)
        g_a, gate_b, up_b, down_b = _cast(u.dtype, g, gate_b, up_b, down_b)
        ranks = [len(gate_a), len(up_a)]
        v = fast_linear(g_a, down_b.T).mul_(down_s)
        g_up = F.silu(gate)
        h = (g_up * up).to(u.dtype)
        g_down_a, g_down_b = sum_of_products(v, h), sum_of_products(u_down, g_a).mul_(down_s).T
        del h
        g_gate = _plus(fast_linear(g, down_w.T), v, down_a, 1.0)  # the gradient of h, for two lines
        g_up.mul_(g_gate)
        torch.ops.aten.silu_backward.grad_input(g_gate.mul_(up), gate, grad_input=g_gate)
        gate_in, up_in = _cast(u.dtype, g_gate, g_up)
        v = torch.cat([fast_linear(gate_in, gate_b.T).mul_(gate_s), fast_linear(up_in, up_b.T).mul_(up_s)], 1)
        g_gate_a, g_up_a = sum_of_products(v, x).split(ranks)
        u_gate, u_up = u.split(ranks, 1)
        g_gate_b = sum_of_products(u_gate, gate_in).mul_(gate_s).T
        g_up_b = sum_of_products(u_up, up_in).mul_(up_s).T
        g_x = None
        if ctx.needs_input_grad[0]:
            g_x = fast_linear(g_gate, gate_w.T).add_(fast_linear(g_up, up_w.T))
            g_x = _plus(g_x, v, torch.cat([gate_a, up_a]), 1.0).to(ctx.dtype)
        gate_grads, up_grads = (None, g_gate_a, g_gate_b, None), (None, g_up_a, g_up_b, None)
        return g_x, *gate_grads, *up_grads, None, g_down_a, g_down_b, None
