"""Â: how much better a row did than expected (hook ``rlm_advantages``).

Every estimator returns exactly zero for a group whose rewards are all equal: dividing rounding noise by a tiny
standard deviation is not a lesson (spec: TRL, verl, oat and OpenRLHF turn eight rewards of 0.3 into advantages of
3e-4, 0.029, 0.71 and 0.91).
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float, Int

from rlm_plugins import hookimpl
from rlm_plugins.lazy import torch

Scale = Literal["group", "batch", "none"]


def group_relative(
    rewards: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"], *, scale: Scale = "group", eps: float = 1e-4
) -> Float[torch.Tensor, "B"]:
    """The reward, seen from the mean of its group and measured in standard deviations.

    Âᵢ = (rᵢ − mean_g) / (std + eps), with Bessel's n − 1 in the std.

    `scale` says whose std: the group's (GRPO, arXiv 2402.03300 §4.1), that of all raw rewards of the batch
    (LitePPO, 2508.08221), or none, the centred reward (Dr. GRPO, 2503.20783). The paper has no `eps` and does not
    say which std; 1e-4 outside the root is TRL's. All rewards of a group equal: exactly 0. A group of one: 0.

    >>> group_relative(torch.tensor([1.0, 0.0, 0.0, 1.0]), torch.tensor([0, 0, 1, 1]), scale="none").tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    table = by_group(rewards, group)
    centred = table.cells - table.cells.nanmean(1, keepdim=True)
    if scale == "group":
        centred = centred / (nanstd(table.cells, 1) + eps)
    if scale == "batch":
        centred = centred / (nanstd(rewards, 0) + eps)
    return table.rows(centred.where(table.has_spread(), 0.0))


def leave_one_out(rewards: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]) -> Float[torch.Tensor, "B"]:
    """The reward, seen from the mean of the *other* rows of its group: an unbiased baseline.

    Âᵢ = rᵢ − 1/(n−1) Σ_{j≠i} rⱼ = n/(n−1) · (rᵢ − mean_g). RLOO, arXiv 2402.14740 eq. 5.

    A group of one has no others: 0. All equal: exactly 0.

    >>> leave_one_out(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0, 0, 0])).tolist()
    [1.0, -0.5, -0.5]
    """
    table = by_group(rewards, group)
    others = table.cells.nansum(1, keepdim=True) - table.cells
    count = table.cells.isfinite().sum(1, keepdim=True) - 1
    return table.rows((table.cells - others / count).where(table.has_spread(), 0.0))


def batch_whitened(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    centre_by_group: bool = False,
    eps: float = 1e-8,
) -> Float[torch.Tensor, "B T"]:
    """The reward, whitened over every trained token of the batch; no group is needed.

    Âᵢₜ = (rᵢ − mean) / √(var + eps), mean and variance (Bessel) over the mask. REINFORCE++, arXiv 2501.03262;
    with `centre_by_group` its baseline variant, which takes the group mean off first.

    A long row counts once per token. All rewards equal: exactly 0.
    """
    if centre_by_group:
        rewards = group_relative(rewards, group, scale="none")
    return whiten(rewards.unsqueeze(1).expand(mask.shape), mask, eps=eps)


def gae(
    token_rewards: Float[torch.Tensor, "B T"],
    values: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    whitened: bool = True,
    masked_tokens: Literal["skip", "through"] = "skip",
) -> tuple[Float[torch.Tensor, "B T"], Float[torch.Tensor, "B T"]]:
    """Generalised advantage estimation: an exponential mix of all n-step surprises of a critic.

    δₜ = rₜ + γ Vₜ₊₁ − Vₜ ;  Âₜ = Σₗ (γλ)ˡ δₜ₊ₗ ;  Rₜ = Âₜ + Vₜ, with V = 0 after the last token. arXiv 1506.02438
    eq. 16; then Â is whitened over the mask (PPO practice). Returns the pair (advantages, returns).

    Masked tokens inside a row (tool output): "skip" carries Â and V across them (verl, NeMo-RL), "through" lets
    them discount as tokens of value and reward 0 (OpenRLHF, ORZ). λ = 1, γ = 1: Âₜ = R − Vₜ.

    >>> rewards, values = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.5]])
    >>> gae(rewards, values, torch.ones(1, 2, dtype=torch.bool), lam=1.0, whitened=False)[0].tolist()
    [[0.5, 0.5]]
    """
    keep = mask.to(values.dtype)
    rewards, values = token_rewards * keep, values * keep
    advantages = torch.zeros_like(values)
    surprise = value_after = torch.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * value_after - values[:, t]
        fresh = delta + gamma * lam * surprise
        live = mask[:, t] if masked_tokens == "skip" else torch.ones_like(mask[:, t])
        surprise, value_after = fresh.where(live, surprise), values[:, t].where(live, value_after)
        advantages[:, t] = surprise
    returns = (advantages + values) * keep
    return (whiten(advantages, mask) if whitened else advantages * keep), returns


# ---- shared arithmetic


class by_group:
    """Rewards as a table, one line per group, NaN where a group has fewer rows than the largest.

    Attributes:
        cells: (P, G) the rewards.
    """

    def __init__(self, rewards: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]) -> None:
        _, self._line, sizes = group.unique(return_inverse=True, return_counts=True)
        order = self._line.argsort(stable=True)
        first = sizes.cumsum(0) - sizes
        self._column = torch.empty_like(order)
        self._column[order] = torch.arange(len(order), device=order.device) - first.repeat_interleave(sizes)
        self.cells = rewards.new_full((len(sizes), int(sizes.max())), torch.nan)
        self.cells[self._line, self._column] = rewards

    def rows(self, cells: Float[torch.Tensor, "P G"]) -> Float[torch.Tensor, "B"]:
        """Takes a table of the same form back to one number per row."""
        return cells[self._line, self._column]

    def has_spread(self) -> Bool[torch.Tensor, "P 1"]:
        """Which groups hold two different rewards; tested as max ≠ min, since rounding makes std > 0 of equals."""
        low = self.cells.nan_to_num(nan=torch.inf).amin(1, keepdim=True)
        high = self.cells.nan_to_num(nan=-torch.inf).amax(1, keepdim=True)
        return high > low


def nanstd(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Standard deviation with Bessel's correction over the numbers that are there; NaN for fewer than two."""
    centred = x - x.nanmean(dim, keepdim=True)
    variance = (centred**2).nanmean(dim, keepdim=True)
    count = x.isfinite().sum(dim, keepdim=True)
    return (variance * (count / (count - 1))).sqrt()


def whiten(
    x: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"], *, eps: float = 1e-8
) -> Float[torch.Tensor, "B T"]:
    """(x − mean) / √(var + eps) over the mask (Bessel), 0 outside it and 0 everywhere if x has no spread."""
    live = x[mask]
    if live.numel() < 2 or live.max() == live.min():
        return torch.zeros_like(x)
    return ((x - live.mean()) * (live.var() + eps).rsqrt()).where(mask, 0.0)


@hookimpl
def rlm_advantages() -> dict[str, object]:
    return {
        "group_relative": group_relative,
        "leave_one_out": leave_one_out,
        "batch_whitened": batch_whitened,
        "gae": gae,
    }
