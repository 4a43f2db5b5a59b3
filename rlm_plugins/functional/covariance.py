"""Covariance of log-probability and advantage per token, which drives the change of the policy's entropy."""

from __future__ import annotations

from jaxtyping import Bool, Float

from rlm_plugins.lazy import torch


def covariance(
    logp: Float[torch.Tensor, "B T"], advantages: Float[torch.Tensor, "B #T"], mask: Bool[torch.Tensor, "B T"]
) -> Float[torch.Tensor, "B T"]:
    """(log π − mean) · (Â − mean), means over the trained tokens; −∞ outside the mask. arXiv 2505.22617. No gradient.

    >>> mask = torch.tensor([[True, True, False]])
    >>> covariance(torch.tensor([[-1.0, -3.0, 0.0]]), torch.tensor([[1.0, 0.0, 9.0]]), mask).tolist()
    [[0.5, 0.5, -inf]]
    """
    count = mask.sum().clamp(min=1)
    centered = [x - x.where(mask, 0.0).sum() / count for x in (logp.detach(), advantages.expand_as(logp))]
    return (centered[0] * centered[1]).where(mask, -torch.inf)


def token_count(mask: Bool[torch.Tensor, "B T"], share: float) -> int:
    """Return the number of tokens in a share of the trained ones, rounded down, at least one.

    >>> token_count(torch.ones(2, 5, dtype=torch.bool), 0.25), token_count(torch.ones(2, 5, dtype=torch.bool), 2e-4)
    (2, 1)
    """
    return max(1, int(share * int(mask.sum())))


def top_mask(x: Float[torch.Tensor, "B T"], count: int) -> Bool[torch.Tensor, "B T"]:
    """Return the mask of the `count` largest numbers above −∞ (all, if there are fewer); ties with the last included.

    >>> top_mask(torch.tensor([[3.0, 1.0], [2.0, -torch.inf]]), 2).tolist()
    [[True, False], [True, False]]
    """
    least = x.flatten().topk(min(count, x.numel())).values[-1:]
    return (x >= least) & (x > -torch.inf)


def quantile(x: Float[torch.Tensor, "B"], share: float) -> Float[torch.Tensor, ""]:
    """Return the interpolated quantile of `x`: equal to torch.quantile bit by bit, for `x` of any length.

    (torch.quantile is limited to 2²⁴ numbers, the tokens of about two thousand completions.)

    >>> quantile(torch.tensor([4.0, 1.0, 2.0, 3.0]), 0.5).item()
    2.5
    """
    ordered, last = x.sort().values, len(x) - 1
    rank = (ordered.new_tensor(share) * last).clamp(max=last)
    below = rank.floor()
    return ordered[below.long()].lerp(ordered[rank.ceil().clamp(max=last).long()], rank - below)
