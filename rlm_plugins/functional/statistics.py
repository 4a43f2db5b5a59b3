"""Arithmetic that estimators share: groups as a table, statistics of what is there, sums over the future."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float, Int

from rlm_plugins.lazy import torch

Singleton = Literal["zero", "reward"]
"""What a row without a group is worth: nothing, or its reward as it is."""


class Groups:
    """Numbers of rows as a table, one line per group, NaN where a group has fewer rows than the largest.

    Rows may stand in any order, groups may be of any size.

    Attributes:
        cells: (P, G) the numbers.

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

    def flatten(self, cells: torch.Tensor) -> torch.Tensor:
        """Takes a table (P, G), or a column (P, 1), back to one entry per row."""
        return cells.expand_as(self.table)[self._line, self._column]

    def has_spread(self) -> Bool[torch.Tensor, "P 1"]:
        """Which groups hold two different numbers. (Rounding gives equal numbers a std above 0: max ≠ min does not.)"""
        return varies(self.table, 1)

    def flatten_or_zero(self, cells: torch.Tensor, singleton: Singleton = "zero") -> Float[torch.Tensor, "B"]:
        """`cells` row by row, exactly 0 in groups without spread; a group of one gets 0, or its own number.

        >>> groups = Groups(torch.tensor([3.0, 1.0, 1.0]), torch.tensor([0, 1, 1]))
        >>> groups.flatten_or_zero(groups.table, "reward").tolist()
        [3.0, 0.0, 0.0]
        """
        single = (~self.table.isnan()).sum(1, keepdim=True) == 1
        equal = self.table.where(single, 0.0) if singleton == "reward" else torch.zeros_like(self.table)
        return self.flatten(cells.where(self.has_spread(), equal))


def expected_logp(
    logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"], group: Int[torch.Tensor, "B"]
) -> Float[torch.Tensor, "B"]:
    """log Σq²/Σq over the rows of a group: how probable a completion of it is on average, drawn by its own probability.

    q is the geometric mean of a row's token probabilities. Rows without tokens are left out; a group of them has 0.

    >>> logp, mask = torch.tensor([[0.25, 9.0], [0.75, 0.75]]).log(), torch.tensor([[True, False], [True, True]])
    >>> expected_logp(logp, mask, torch.tensor([0, 0])).exp()  # (1/16 + 9/16) / (1/4 + 3/4)
    tensor([0.6250, 0.6250])
    """
    count = mask.sum(1)
    row = (logp.where(mask, 0.0).sum(1) / count.clamp(min=1)).masked_fill(count == 0, -torch.inf)
    groups = Groups(row, group)
    cells = groups.table.masked_fill(groups.table.isnan(), -torch.inf)
    expected = (2 * cells).logsumexp(1, keepdim=True) - cells.logsumexp(1, keepdim=True)
    return groups.flatten(expected.nan_to_num(nan=0.0))


def varies(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Whether two of the numbers that are there differ, along `dim` (which stays, of size 1)."""
    low = x.nan_to_num(nan=torch.inf).amin(dim, keepdim=True)
    high = x.nan_to_num(nan=-torch.inf).amax(dim, keepdim=True)
    return high > low


def nanstd(x: torch.Tensor, dim: int, *, unbiased: bool = True) -> torch.Tensor:
    """Standard deviation over the numbers that are there, divided by n − 1 (Bessel; NaN for fewer than two) or n.

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
    """(x − mean) / √(var + eps) over the mask, 0 outside it, and 0 everywhere when x has no spread."""
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
    """Σₗ factorˡ xₜ₊ₗ over the live tokens from t on; one that is not live is stepped over, or (no `carry`) the end.

    >>> discounted(torch.tensor([[4.0, 9.0, 2.0]]), 0.5, torch.tensor([[True, False, True]])).tolist()
    [[5.0, 2.0, 2.0]]
    """
    total, totals = x.new_zeros(len(x)), []
    for t in reversed(range(x.shape[1])):
        total = (x[:, t] + factor * total).where(live[:, t], total if carry else 0.0)
        totals.append(total)
    return torch.stack(totals[::-1], 1)


def next_live(x: Float[torch.Tensor, "B T"], live: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """x at the next live token, 0 after the last.

    >>> next_live(torch.tensor([[4.0, 9.0, 2.0]]), torch.tensor([[True, False, True]])).tolist()
    [[2.0, 2.0, 0.0]]
    """
    width = x.shape[1]
    places = torch.arange(width, device=x.device).where(live, width)
    upcoming = places.flip(1).cummin(1).values.flip(1)
    after = torch.nn.functional.pad(upcoming[:, 1:], (0, 1), value=width)
    return torch.nn.functional.pad(x, (0, 1)).gather(1, after)
