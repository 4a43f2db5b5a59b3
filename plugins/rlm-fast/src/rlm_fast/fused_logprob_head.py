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
from jaxtyping import Float, Int

from rlm_fast.cpu_linear import chunk_tokens, fast_linear


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
