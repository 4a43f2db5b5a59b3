"""Completions in segments (steps, turns): sums per segment, values per token, and comparison of segments."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int

from rlm_plugins.equation.statistics import Groups, nanstd
from rlm_plugins.lazy import torch


class TokenSegments:
    """A table with one column per segment of a completion.

    Args:
        number: Segment of each token, from 0; −1: none.

    Attributes:
        live: (B, K) True where the completion has a segment of that number.

    >>> cut = TokenSegments(torch.tensor([[0, 0, -1, 1], [-1, 0, 0, -1]]))
    >>> cut.sums(torch.tensor([[1.0, 2.0, 9.0, 4.0], [9.0, 1.0, 1.0, 9.0]])).tolist()
    [[3.0, 4.0], [2.0, 0.0]]
    >>> cut.to_tokens(torch.tensor([[3.0, 4.0], [2.0, 0.0]])).tolist()
    [[3.0, 3.0, 0.0, 4.0], [0.0, 2.0, 2.0, 0.0]]
    """

    def __init__(self, number: Int[torch.Tensor, "B T"]) -> None:
        segments = torch.arange(max(1, int(number.max()) + 1), device=number.device)
        self._own: Bool[torch.Tensor, "B T K"] = number.unsqueeze(2) == segments
        self.live = self._own.any(1)

    def sums(self, x: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B K"]:
        """Sum the values of each segment's tokens."""
        return (x.unsqueeze(2) * self._own).sum(1)

    def to_tokens(self, table: Float[torch.Tensor, "B K"]) -> Float[torch.Tensor, "B T"]:
        """Return the value of its segment for every token; 0 outside of segments."""
        return (table.unsqueeze(1) * self._own).sum(2)

    def relative_to_peers(
        self, table: Float[torch.Tensor, "B K"], peers: Int[torch.Tensor, "B K"], *, scale: bool, eps: float
    ) -> Float[torch.Tensor, "B K"]:
        """Subtract from each segment the mean of its peers, and divide by their standard deviation (n − 1) if `scale`.

        Segments that are all equal, or without peers: exactly 0.
        """
        result = torch.zeros_like(table)
        if self.live.any():
            groups = Groups(table[self.live], peers[self.live])
            centered = groups.table - groups.table.nanmean(1, keepdim=True)
            result[self.live] = groups.flatten_or_zero(
                centered / (nanstd(groups.table, 1) + eps) if scale else centered
            )
        return result
