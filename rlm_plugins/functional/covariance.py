"""Which tokens change the entropy of the policy most: those whose log-probability and advantage move together."""

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
    likely, better = logp.detach(), advantages.expand_as(logp)
    count = mask.sum().clamp(min=1)
    from_mean = [x - x.where(mask, 0.0).sum() / count for x in (likely, better)]
    return (from_mean[0] * from_mean[1]).where(mask, -torch.inf)


def token_count(mask: Bool[torch.Tensor, "B T"], share: float) -> int:
    """How many tokens a share of the trained ones is: rounded down, and one at least.

    >>> token_count(torch.ones(2, 5, dtype=torch.bool), 0.25), token_count(torch.ones(2, 5, dtype=torch.bool), 2e-4)
    (2, 1)
    """
    return max(1, int(share * int(mask.sum())))


def top_mask(x: Float[torch.Tensor, "B T"], count: int) -> Bool[torch.Tensor, "B T"]:
    """The `count` largest numbers above −∞ (all of them, where there are fewer); what equals the last is taken too.

    >>> top_mask(torch.tensor([[3.0, 1.0], [2.0, -torch.inf]]), 2).tolist()
    [[True, False], [True, False]]
    """
    least = x.flatten().topk(min(count, x.numel())).values[-1:]
    return (x >= least) & (x > -torch.inf)


def quantile(x: Float[torch.Tensor, "B"], share: float) -> Float[torch.Tensor, ""]:
    """The number below which `share` of `x` lies, interpolated: torch.quantile, bit by bit, for `x` of any length.

    (torch's own refuses more than 2²⁴ numbers, which are the tokens of two thousand rows.)

    >>> quantile(torch.tensor([4.0, 1.0, 2.0, 3.0]), 0.5).item()
    2.5
    """
    ordered, last = x.sort().values, len(x) - 1
    rank = (ordered.new_tensor(share) * last).clamp(max=last)
    below = rank.floor()
    return ordered[below.long()].lerp(ordered[rank.ceil().clamp(max=last).long()], rank - below)
