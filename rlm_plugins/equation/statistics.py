"""Tensor statistics of parts: group tables, missing values, whitening, discounted sums, KL estimates, epoch orders."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float, Int

from rlm_plugins.lazy import torch

Singleton = Literal["zero", "reward"]
"""Advantage of a completion that is alone in its group: zero, or its reward."""


class Groups:
    """A (B,) tensor as a table of one line per group, NaN where a group is smaller than the largest.

    Completions may be in any order, groups of any size.

    Attributes:
        table: (P, G), one line per group.

    >>> groups = Groups(torch.tensor([1.0, 5.0, 3.0]), torch.tensor([7, 2, 7]))
    >>> groups.table.tolist()
    [[5.0, nan], [1.0, 3.0]]
    >>> groups.flatten(groups.table.nanmean(1, keepdim=True)).tolist()
    [2.0, 5.0, 2.0]
    """

    def __init__(self, x: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]) -> None:
        _, self._line, sizes = torch.unique(group, return_inverse=True, return_counts=True)
        order = self._line.argsort(stable=True)
        first = sizes.cumsum(0) - sizes
        self._column = torch.empty_like(order)
        self._column[order] = torch.arange(len(order), device=order.device) - first.repeat_interleave(sizes)
        self.table = x.new_full((len(sizes), int(sizes.max())), torch.nan)
        self.table[self._line, self._column] = x

    def flatten(self, table: torch.Tensor) -> torch.Tensor:
        """Return a table (P, G), or a column (P, 1), as one entry per completion, (B,)."""
        return table.expand_as(self.table)[self._line, self._column]

    def has_spread(self) -> Bool[torch.Tensor, "P 1"]:
        """Return True for groups with two different numbers; rounding can give equal numbers a std above 0."""
        return varies(self.table, 1)

    def flatten_or_zero(self, table: torch.Tensor, singleton: Singleton = "zero") -> Float[torch.Tensor, "B"]:
        """Return `table` per completion, exactly 0 in groups without spread; a singleton gets 0, or its own number.

        >>> groups = Groups(torch.tensor([3.0, 1.0, 1.0]), torch.tensor([0, 1, 1]))
        >>> groups.flatten_or_zero(groups.table, "reward").tolist()
        [3.0, 0.0, 0.0]
        """
        single = (~self.table.isnan()).sum(1, keepdim=True) == 1
        equal = self.table.where(single, 0.0) if singleton == "reward" else torch.zeros_like(self.table)
        return self.flatten(table.where(self.has_spread(), equal))


def expected_logp(
    logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"], group: Int[torch.Tensor, "B"]
) -> Float[torch.Tensor, "B"]:
    """log Σq²/Σq over the completions of a group: their mean probability, each weighted by its own probability.

    q is the geometric mean of a completion's token probabilities. Completions without tokens are left out; a group of
    only such completions has 0.

    >>> logp, mask = torch.tensor([[0.25, 9.0], [0.75, 0.75]]).log(), torch.tensor([[True, False], [True, True]])
    >>> expected_logp(logp, mask, torch.tensor([0, 0])).exp()  # (1/16 + 9/16) / (1/4 + 3/4)
    tensor([0.6250, 0.6250])
    """
    count = mask.sum(1)
    mean_logp = (logp.where(mask, 0.0).sum(1) / count.clamp(min=1)).masked_fill(count == 0, -torch.inf)
    groups = Groups(mean_logp, group)
    table = groups.table.masked_fill(groups.table.isnan(), -torch.inf)
    expected = (2 * table).logsumexp(1, keepdim=True) - table.logsumexp(1, keepdim=True)
    return groups.flatten(expected.nan_to_num(nan=0.0))


def varies(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return True where two numbers that are not NaN differ, along `dim` (kept with size 1)."""
    low = x.nan_to_num(nan=torch.inf).amin(dim, keepdim=True)
    high = x.nan_to_num(nan=-torch.inf).amax(dim, keepdim=True)
    return high > low


def nanstd(x: torch.Tensor, dim: int, *, unbiased: bool = True) -> torch.Tensor:
    """Return the standard deviation without NaNs, with n − 1 (unbiased; NaN for fewer than two numbers) or n.

    >>> nanstd(torch.tensor([1.0, torch.nan, 3.0]), 0).item()
    1.4142135381698608
    """
    variance = ((x - x.nanmean(dim, keepdim=True)) ** 2).nanmean(dim, keepdim=True)
    if not unbiased:
        return variance.sqrt()
    count = (~x.isnan()).sum(dim, keepdim=True).to(x.dtype)
    return (variance * (count / (count - 1))).sqrt()


def whiten(
    x: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"], *, eps: float = 1e-8, unbiased: bool = True
) -> Float[torch.Tensor, "B T"]:
    """(x − mean) / √(var + eps) over the mask, 0 outside it, and 0 everywhere if x has no spread."""
    live = x[mask]
    if live.numel() < 2 or live.max() == live.min():
        return torch.zeros_like(x)
    return ((x - live.mean()) * (live.var(correction=int(unbiased)) + eps).rsqrt()).where(mask, 0.0)


def discounted(
    x: Float[torch.Tensor, "B T"],
    factor: float | Float[torch.Tensor, "B"],
    live: Bool[torch.Tensor, "B T"],
    *,
    carry: bool = True,
) -> Float[torch.Tensor, "B T"]:
    """Σₗ factorˡ xₜ₊ₗ over the live tokens from t on; other tokens are skipped, or (no `carry`) end the sum.

    >>> discounted(torch.tensor([[4.0, 9.0, 2.0]]), 0.5, torch.tensor([[True, False, True]])).tolist()
    [[5.0, 2.0, 2.0]]
    """
    total, totals = x.new_zeros(len(x)), []
    for t in reversed(range(x.shape[1])):
        total = (x[:, t] + factor * total).where(live[:, t], total if carry else 0.0)
        totals.append(total)
    return torch.stack(totals[::-1], 1)


def next_live(x: Float[torch.Tensor, "B T"], live: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """Return x at the next live token, 0 after the last.

    >>> next_live(torch.tensor([[4.0, 9.0, 2.0]]), torch.tensor([[True, False, True]])).tolist()
    [[2.0, 2.0, 0.0]]
    """
    width = x.shape[1]
    positions = torch.arange(width, device=x.device).where(live, width)
    upcoming = positions.flip(1).cummin(1).values.flip(1)
    after = torch.nn.functional.pad(upcoming[:, 1:], (0, 1), value=width)
    return torch.nn.functional.pad(x, (0, 1)).gather(1, after)


Estimator = Literal["k1", "k2", "k3", "abs"]


def kl_estimate(
    logp: Float[torch.Tensor, "B T"], other: Float[torch.Tensor, "B T"], estimator: Estimator
) -> Float[torch.Tensor, "B T"]:
    """Return k1, k2, k3 or |d| of log π against `other`; k3 clamps log-ratios at ±20, with zero gradient beyond."""
    if estimator == "k1":
        return logp - other
    if estimator == "k2":
        return (logp - other) ** 2 / 2
    if estimator == "abs":
        return (logp - other).abs()

    def gap() -> torch.Tensor:
        return (other - logp).clamp(-20.0, 20.0)

    # Computed twice, as in TRL: autograd then accumulates the two halves of the gradient in TRL's order.
    return torch.exp(gap()) - gap() - 1


def shuffled(size: int, epoch: int, seed: int) -> list[int]:
    """Return every index once, in a new random order each epoch.

    Epoch e takes the (e+1)-th permutation drawn from one generator: TRL's own order (`RepeatSampler`), in every
    epoch. It depends on `seed` and `epoch` only, so a resumed run continues exactly.

    >>> shuffled(5, epoch=1, seed=0)
    [3, 4, 0, 1, 2]
    """
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epoch):
        torch.randperm(size, generator=generator)
    order: list[int] = torch.randperm(size, generator=generator).tolist()
    return order


def in_order(size: int) -> list[int]:
    """Return every index once, in the order of the data set: a curriculum, if that is sorted.

    >>> in_order(3)
    [0, 1, 2]
    """
    return list(range(size))
