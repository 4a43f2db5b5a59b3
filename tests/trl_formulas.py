"""TRL 1.16's arithmetic, restated formula by formula: parts must equal it to the last bit.

`test_parity.py` runs TRL itself; this shows *which* piece differs when that fails.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


def nanstd(x: Tensor, dim: int | None = None) -> Tensor:
    mean = torch.nanmean(x, dim=dim, keepdim=True)
    variance = torch.nanmean((x - mean) ** 2, dim=dim, keepdim=True)
    count = torch.sum(~torch.isnan(x), dim=dim, keepdim=True)
    std = torch.sqrt(variance * (count / (count - 1)))
    return std.squeeze(dim) if dim is not None else std.squeeze()


def advantages(rewards: Tensor, generations: int, scale: str) -> Tensor:
    """Return group-relative advantages from (B,) rewards, groups in order, NaN for unscored completions."""
    table = rewards.view(-1, generations)
    centred = rewards - torch.nanmean(table, dim=1).repeat_interleave(generations)
    if scale == "group":
        centred = centred / (nanstd(table, dim=1).repeat_interleave(generations) + 1e-4)
    if scale == "batch":
        centred = centred / (nanstd(rewards).expand_as(rewards) + 1e-4)
    return torch.nan_to_num(centred, nan=0.0)


def log_weights(logp: Tensor, old_logp: Tensor, mask: Tensor, level: str) -> Tensor:
    log_ratio = logp - old_logp
    if level == "token":
        return log_ratio
    return ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)


def per_token_kl(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return torch.exp(ref_logp - logp) - (ref_logp - logp) - 1


def surrogate(weights: Tensor, advantages: Tensor, logp: Tensor, kind: str, low: float, high: float, delta: Any) -> Any:
    if kind == "cispo":
        return -torch.clamp(weights, max=high).detach() * advantages * logp
    clipped = torch.clamp(weights, 1 - low, 1 + high)
    free = weights if delta is None else torch.clamp(weights, max=delta)
    return -torch.min(free * advantages, clipped * advantages)


def aggregate(loss: Tensor, mask: Tensor, kind: str, length: int, tokens: Tensor, accumulation: int) -> Tensor:
    """Return the aggregated loss; `tokens` is the number of trained tokens of all micro-batches of the step."""
    if kind == "grpo":
        return ((loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean() / accumulation
    if kind == "bnpo":
        return (loss * mask).sum() / mask.sum().clamp(min=1.0) / accumulation
    if kind == "dr_grpo":
        return (loss * mask).sum() / (loss.size(0) * length) / accumulation
    if kind == "luspo":
        return (loss * mask).sum(-1).mean() / accumulation
    return (loss * mask).sum() / tokens.clamp(min=1.0)


def loss(
    logp: Tensor,
    old_logp: Tensor,
    ref_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    kind: str,
    tokens: Tensor,
    level: str = "token",
    low: float = 0.2,
    high: float = 0.2,
    delta: float | None = None,
    beta: float = 0.0,
    weighted: bool = False,
    length: int = 32,
    accumulation: int = 1,
) -> Tensor:
    """Compute `GRPOTrainer._compute_loss` from log-probs."""
    weights = torch.exp(log_weights(logp, old_logp, mask, level))
    if beta != 0.0:
        kl = per_token_kl(logp, ref_logp)
        kl = kl * weights if weighted else kl
    per_token = surrogate(weights, advantages, logp, kind, low, high, delta)
    if beta != 0.0:
        per_token = per_token + beta * kl
    return aggregate(per_token, mask, kind, length, tokens, accumulation)
