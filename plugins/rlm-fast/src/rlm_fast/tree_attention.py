"""Attention over a prefix tree in one packed sequence: a token attends to the tokens on its path from the root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from jaxtyping import Bool
from torch.nn.functional import scaled_dot_product_attention

from rlm_fast import chunk_sizes
from rlm_fast.prefix_tree import Run, ancestors, attention_runs


@dataclass(frozen=True)
class AttentionCall:
    """Consecutive tokens of one attention call.

    Args:
        tokens: Number of tokens.
        context: Indices of the chunks of the sequence that hold earlier tokens they attend to.
        visible: True where a token attends to a token of the context or of the call. None: the call is causal.
    """

    tokens: int
    context: tuple[int, ...]
    visible: Bool[torch.Tensor, "n m"] | None = None
    _masks: dict[torch.dtype, torch.Tensor] = field(default_factory=dict)

    def mask(self, dtype: torch.dtype) -> torch.Tensor | None:
        """Return the additive mask, 0 or −∞, computed once for all layers; None if the call is causal."""
        if self.visible is not None and dtype not in self._masks:
            zeros = torch.zeros(self.visible.shape, dtype=dtype, device=self.visible.device)
            self._masks[dtype] = zeros.masked_fill_(~self.visible, -torch.inf)
        return self._masks.get(dtype)


@dataclass(frozen=True)
class TreeAttention:
    """Attention calls of a packed sequence.

    Args:
        chunks: Tokens of the chunks into which the sequence is split for the contexts of calls.
        calls: Consecutive in the sequence.
    """

    chunks: tuple[int, ...]
    calls: tuple[AttentionCall, ...]

    @classmethod
    def of_tree(cls, sizes: Sequence[int], parents: Sequence[int], device: torch.device) -> TreeAttention:
        """Plan the attention of a tree (`prefix_tree.py`).

        Args:
            sizes: Tokens of each segment, in depth-first order.
            parents: Index of the segment before each; -1: none.
            device: Device of the tokens.
        """
        runs = attention_runs(sizes, parents, chunk_sizes.PAIRS if device.type == "cpu" else chunk_sizes.PAIRS_GPU)
        bounds = [0, *accumulate(sizes)]
        shared = {index for run in runs for index in run.context}
        cuts = sorted({0, bounds[-1], *(bound for index in shared for bound in bounds[index : index + 2])})
        chunk_at = {cut: chunk for chunk, cut in enumerate(cuts)}
        calls = []
        for run in runs:
            tokens = bounds[run.segments.stop] - bounds[run.segments.start]
            context = tuple(chunk_at[bounds[index]] for index in run.context)
            calls.append(AttentionCall(tokens, context, _visible(run, sizes, parents, device)))
        return cls(tuple(stop - start for start, stop in pairwise(cuts)), tuple(calls))

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None
    ) -> torch.Tensor:
        """Return the attention output (1, T, heads, d).

        Args:
            query: (1, heads, T, d).
            key: (1, key heads, T, d); consecutive query heads share a key head.
            value: (1, key heads, T, d).
            scale: Factor of the attention scores; None: 1/√d.
        """
        grouped = query.shape[1] > key.shape[1]
        if grouped and query.device.type != "cpu":  # only the CPU kernel supports grouped heads together with a mask
            repeats = query.shape[1] // key.shape[1]
            key, value, grouped = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1), False
        tokens = [call.tokens for call in self.calls]
        keys, values = key.split(self.chunks, 2), value.split(self.chunks, 2)
        outputs = []
        for call, q, k, v in zip(self.calls, *(x.split(tokens, 2) for x in (query, key, value)), strict=True):
            if call.context:
                k = torch.cat([*(keys[chunk] for chunk in call.context), k], 2)
                v = torch.cat([*(values[chunk] for chunk in call.context), v], 2)
            mask = call.mask(q.dtype)
            outputs.append(
                scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
                )
            )
        return torch.cat([x.transpose(1, 2) for x in outputs], 1)


def _visible(
    run: Run, sizes: Sequence[int], parents: Sequence[int], device: torch.device
) -> Bool[torch.Tensor, "n m"] | None:
    """Return the mask of a run, None if it is causal: a segment attends to its ancestors and its own earlier tokens."""
    if run.is_causal:
        return None
    columns: dict[int, slice] = {}
    width = 0
    for index in (*run.context, *run.segments):
        columns[index] = slice(width, width + sizes[index])
        width += sizes[index]
    rows = torch.zeros(sum(sizes[index] for index in run.segments), width, dtype=torch.bool, device=device)
    first = 0
    for index in run.segments:
        segment_rows = rows[first : first + sizes[index]]
        for ancestor in ancestors(index, parents):
            segment_rows[:, columns[ancestor]] = True
        segment_rows[:, columns[index]] = torch.ones(sizes[index], sizes[index], dtype=torch.bool, device=device).tril()
        first += sizes[index]
    return rows
