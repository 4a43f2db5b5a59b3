"""Rows in pieces (steps, turns): from tokens to pieces and back, and pieces that are compared."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int

from rlm_plugins.functional.statistics import Groups, nanstd
from rlm_plugins.lazy import torch


class Segments:
    """A table with one column per piece of a row.

    Args:
        number: To which piece of its row each token belongs, from 0; −1: to none.

    Attributes:
        live: (B, K) which rows have a piece of that number.

    >>> cut = Segments(torch.tensor([[0, 0, -1, 1], [-1, 0, 0, -1]]))
    >>> cut.sums(torch.tensor([[1.0, 2.0, 9.0, 4.0], [9.0, 1.0, 1.0, 9.0]])).tolist()
    [[3.0, 4.0], [2.0, 0.0]]
    >>> cut.spread(torch.tensor([[3.0, 4.0], [2.0, 0.0]])).tolist()
    [[3.0, 3.0, 0.0, 4.0], [0.0, 2.0, 2.0, 0.0]]
    """

    def __init__(self, number: Int[torch.Tensor, "B T"]) -> None:
        pieces = torch.arange(max(1, int(number.max()) + 1), device=number.device)
        self._own: Bool[torch.Tensor, "B T K"] = number.unsqueeze(2) == pieces
        self.live = self._own.any(1)

    def sums(self, x: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B K"]:
        """What the tokens of each piece add up to."""
        return (x.unsqueeze(2) * self._own).sum(1)

    def spread(self, table: Float[torch.Tensor, "B K"]) -> Float[torch.Tensor, "B T"]:
        """The number of its piece for every token; 0 for one that is in none."""
        return (table.unsqueeze(1) * self._own).sum(2)

    def compared(
        self, table: Float[torch.Tensor, "B K"], like: Int[torch.Tensor, "B K"], *, scale: bool, eps: float
    ) -> Float[torch.Tensor, "B K"]:
        """Each piece, seen from the mean of those that are like it, and (`scale`) in standard deviations (n − 1).

        Pieces that are all equal, or like no other: exactly 0.
        """
        found = torch.zeros_like(table)
        if self.live.any():
            groups = Groups(table[self.live], like[self.live])
            cells = groups.table - groups.table.nanmean(1, keepdim=True)
            found[self.live] = groups.flatten_or_zero(cells / (nanstd(groups.table, 1) + eps) if scale else cells)
        return found
