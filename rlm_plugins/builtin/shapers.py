"""r′: how the raw score is bent (hook ``rlm_shapers``). (B,) replaces the reward, (B, T) is added to it."""

from __future__ import annotations

from jaxtyping import Bool, Float
from pydantic import PositiveInt

from rlm_plugins import hookimpl
from rlm_plugins.lazy import torch


def overlong(
    rewards: Float[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    max_completion_length: int,
    *,
    max_length: PositiveInt | None = None,
    cache: PositiveInt | None = None,
    factor: float = 1.0,
) -> Float[torch.Tensor, "B"]:
    """A soft punishment that grows over the last `cache` tokens before the limit.

    r′ = r + factor · clip(((L − cache) − n) / cache, −1, 0). DAPO, arXiv 2503.14476 eq. 13.

    `max_length` L defaults to the longest completion allowed, `cache` to L / 5 (the paper: 4096 of 20480).
    An empty row is not punished.

    >>> mask = torch.ones(1, 9, dtype=torch.bool)
    >>> overlong(torch.tensor([1.0]), mask, 10, cache=2).item()
    0.5
    """
    limit = max_length or max_completion_length
    soft = cache or max(1, limit // 5)
    beyond = (mask.sum(1) - (limit - soft)).to(rewards.dtype)
    return rewards - factor * (beyond / soft).clamp(0.0, 1.0)


def kl_in_reward(
    old_logp: Float[torch.Tensor, "B T"],
    ref_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    beta: float = 0.05,
) -> Float[torch.Tensor, "B T"]:
    """rₜ −= β (log π_old − log π_ref): drift from the reference is paid for where it happens.

    RLHF practice (arXiv 1909.08593 eq. 2); k1, because a reward needs the unbiased value, not a gradient.

    >>> kl_in_reward(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), torch.tensor([[True]]), beta=0.5).item()
    -1.0
    """
    return -beta * (old_logp - ref_logp).where(mask, 0.0)


@hookimpl
def rlm_shapers() -> dict[str, object]:
    return {"overlong": overlong, "kl_in_reward": kl_in_reward}
