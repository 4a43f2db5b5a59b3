"""log π(y) and entropy from hidden states, a few rows of logits at a time.

The logits of a chunk are needed three times: for the value, for its gradient in h, and, where the head is trained, for
that in W. The gradient in h is made at once, while they are there::

    z = (W h + b) / τ        log π(y) = log softmax(z)[y]     ∂/∂h = ((1 − p_y) W[y] − Σ_{v≠y} p_v W[v]) / τ
                             H = −Σ_v p_v log p_v             ∂/∂h = −Σ_v p_v (log p_v + H) W[v] / τ

so that backward neither keeps logits nor computes them again. Only a trained head recomputes them, chunk by chunk.
Under autocast products are made in its type, forward and backward, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int

from rlm_plugins.kernels.chunk_sizes import logits
from rlm_plugins.kernels.cpu_linear import product


def read_head(
    hidden: Float[torch.Tensor, "N H"],
    weight: Float[torch.Tensor, "V H"],
    bias: Float[torch.Tensor, "V"] | None,  # noqa: F821
    target: Int[torch.Tensor, "N"],  # noqa: F821
    *,
    temperature: float = 1.0,
    with_entropy: bool = True,
    entropy_gradient: bool = False,
) -> tuple[Float[torch.Tensor, "N"], Float[torch.Tensor, "N"]]:  # noqa: F821
    """Log-probability of each target (nats) and entropy of the distribution it comes from, in float32.

    Args:
        hidden: States the tokens are predicted from.
        weight: Of the language head.
        bias: Of the language head.
        target: Token ids.
        temperature: The logits are divided by it.
        with_entropy: Whether the entropy is asked for; else it is 0.
        entropy_gradient: Whether the entropy carries a gradient; that costs one more product with `weight`.
    """
    asked = with_entropy or entropy_gradient, entropy_gradient
    logp, entropy = _ReadHead.apply(hidden, weight, bias, target, temperature, *asked)  # type: ignore[no-untyped-call]
    return logp, entropy if entropy_gradient else entropy.detach()


class _ReadHead(torch.autograd.Function):
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
        given = hidden, weight, bias
        ctx.dtype = _type_of_products(hidden)
        hidden, weight, bias = _cast(ctx.dtype, *given)
        logp = torch.empty(len(hidden), device=hidden.device)
        entropy = torch.zeros_like(logp)
        moves = ctx.needs_input_grad[0]
        of_logp = torch.empty_like(hidden, dtype=torch.float32) if moves else None
        of_entropy = torch.empty_like(hidden, dtype=torch.float32) if moves and entropy_gradient else None
        room = torch.empty(0, device=hidden.device, dtype=torch.float32)
        for part in chunks(hidden, weight):
            y = target[part].unsqueeze(1)
            p, z, top = _distribution(hidden[part], weight, bias, temperature, room)
            logp[part] = (z.gather(1, y) + top).squeeze(1)
            if with_entropy:
                entropy[part] = -(p * z).sum(-1) - top.squeeze(1)
            if of_entropy is not None:
                tilted = (z + (top + entropy[part].unsqueeze(1))).mul_(p).to(weight.dtype)
                of_entropy[part] = product(tilted, weight.T) / -temperature
                del tilted
            if of_logp is not None:
                own = (1 - p.gather(1, y)) * weight[y.squeeze(1)]  # apart: in two bytes a likely word leaves nothing
                others = product(p.scatter_(1, y, 0.0).to(weight.dtype), weight.T)
                of_logp[part] = (own - others) / temperature
            del z  # else it would be there beside the next one
        ctx.temperature, ctx.entropy_gradient = temperature, entropy_gradient
        ctx.save_for_backward(*given, target, of_logp, of_entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, g_logp: torch.Tensor, g_entropy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        hidden, weight, bias, target, of_logp, of_entropy = ctx.saved_tensors
        g_hidden = None
        if of_logp is not None:
            g_hidden = of_logp * g_logp.unsqueeze(1)
        if of_entropy is not None:
            g_hidden = g_hidden + of_entropy * g_entropy.unsqueeze(1)
        g_hidden = None if g_hidden is None else g_hidden.to(hidden.dtype)
        if not any(ctx.needs_input_grad[1:3]):
            return g_hidden, *[None] * 6
        h, w, b = _cast(ctx.dtype, hidden, weight, bias)
        g_weight = torch.zeros_like(weight, dtype=torch.float32)
        g_bias = torch.zeros(len(weight), device=weight.device)
        room = torch.empty(0, device=hidden.device, dtype=torch.float32)
        for part in chunks(h, w):
            p, z, _ = _distribution(h[part], w, b, ctx.temperature, room)
            g_z = p * -g_logp[part].unsqueeze(1)
            g_z.scatter_add_(1, target[part].unsqueeze(1), g_logp[part].unsqueeze(1))
            if ctx.entropy_gradient:
                g_z -= g_entropy[part].unsqueeze(1) * p * (z - (p * z).sum(-1, keepdim=True))
            g_z /= ctx.temperature
            g_bias += g_z.sum(0)
            del z
            g_weight += (g_z.to(h.dtype).T @ h[part]).float()
            del g_z
        return g_hidden, g_weight.to(weight.dtype), None if bias is None else g_bias.to(bias.dtype), *[None] * 4


def _type_of_products(hidden: torch.Tensor) -> torch.dtype:
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype


def _cast(dtype: torch.dtype, *given: torch.Tensor | None) -> list[Any]:
    """Once for all chunks: autocast itself would cast the whole weight for each of them."""
    return [None if x is None else x.to(dtype) for x in given]


def _distribution(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, temperature: float, room: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """p (N, V), and log p as a sum: the logits less the largest of their row (N, V), and log p of that one (N, 1).

    p lies in `room`, from piece to piece: fresh memory costs time.
    """
    z = product(hidden, weight, bias).float()
    z = z if temperature == 1.0 else z.div_(temperature)
    z -= z.amax(-1, keepdim=True)
    p = torch.softmax(z, -1, out=room.resize_(z.shape))
    return p, z, p.amax(-1, keepdim=True).log()


def chunks(hidden: torch.Tensor, weight: torch.Tensor) -> Iterator[slice]:
    """Pieces of the hidden states, each with few enough logits to be there at a time."""
    size = logits(len(weight), gpu=hidden.is_cuda) // len(weight)
    return (slice(first, first + size) for first in range(0, len(hidden), size))
