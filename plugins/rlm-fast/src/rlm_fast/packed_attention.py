"""Attention over a prefix tree whose tokens are packed into one sequence, by the kernels of PyTorch and of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import torch
from jaxtyping import Bool
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from torch.nn.functional import scaled_dot_product_attention

from rlm_fast import linear_layers
from rlm_fast.tree_attention import ancestors


@dataclass(frozen=True)
class Run:
    """Consecutive segments of a tree whose tokens share an attention call.

    Args:
        segments: Their indices.
        context: Indices of earlier segments that one of them attends to.
        masked: Computed pairs of tokens that do not attend to each other.
    """

    segments: range
    context: tuple[int, ...]
    masked: int

    @property
    def is_causal(self) -> bool:
        """True if it needs no mask, because it is one path from a root."""
        return self.masked == 0 and not self.context


def attention_runs(sizes: Sequence[int], parents: Sequence[int], pairs: int) -> list[Run]:
    """Return the segments of a tree, grouped by attention call.

    A call has overhead, which dominates for short segments. A call for several computes masked pairs of tokens. So
    the next segment joins a call unless that would add more than `pairs` of them.

    >>> runs = attention_runs([9, 30, 30, 30, 100, 5, 5], [-1, 0, 0, 0, 0, 0, 0], pairs=2000)
    >>> [list(run.segments) for run in runs]
    [[0, 1], [2, 3], [4, 5, 6]]
    """
    path_lens: list[int] = []  # tokens on the path before each segment
    for parent in parents:
        path_lens.append(0 if parent < 0 else path_lens[parent] + sizes[parent])
    runs: list[Run] = []
    for index in range(len(sizes)):
        single = _run(range(index, index + 1), sizes, parents, path_lens)
        joined = _run(range(runs[-1].segments.start, index + 1), sizes, parents, path_lens) if runs else single
        if runs and joined.masked - runs[-1].masked - single.masked <= pairs:
            runs[-1] = joined
        else:
            runs.append(single)
    return runs


def _run(segments: range, sizes: Sequence[int], parents: Sequence[int], path_lens: Sequence[int]) -> Run:
    """Return a run of these segments, with its context and masked pairs."""
    if parents[segments.start] < 0 and all(parents[index] == index - 1 for index in segments[1:]):
        return Run(segments, (), 0)
    outside: set[int] = set()
    for index in segments:
        outside.update(parent for parent in ancestors(index, parents) if parent < segments.start)
    tokens = sum(sizes[index] for index in segments)
    attended = sum(sizes[index] * path_lens[index] + sizes[index] * (sizes[index] + 1) // 2 for index in segments)
    return Run(segments, tuple(sorted(outside)), tokens * (tokens + sum(sizes[index] for index in outside)) - attended)


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
    """Attention of T tokens, in which each attends to the tokens on its path from the root.

    Args:
        sizes: Tokens of each segment of the tree; T in all.
        parents: The segment before each segment; -1: none.
        device: Where the masks are.
    """

    sizes: tuple[int, ...]
    parents: tuple[int, ...]
    device: torch.device

    @cached_property
    def calls(self) -> tuple[tuple[int, ...], tuple[AttentionCall, ...]]:
        """The chunks into which keys are split, by their tokens; and the calls, consecutive in the sequence."""
        sizes, parents, device = self.sizes, self.parents, self.device
        runs = attention_runs(sizes, parents, linear_layers.PAIRS if device.type == "cpu" else linear_layers.PAIRS_GPU)
        bounds = [0, *accumulate(sizes)]
        shared = {index for run in runs for index in run.context}
        cuts = sorted({0, bounds[-1], *(bound for index in shared for bound in bounds[index : index + 2])})
        chunk_at = {cut: chunk for chunk, cut in enumerate(cuts)}
        calls = []
        for run in runs:
            tokens = bounds[run.segments.stop] - bounds[run.segments.start]
            context = tuple(chunk_at[bounds[index]] for index in run.context)
            calls.append(AttentionCall(tokens, context, _visible(run, sizes, parents, device)))
        return tuple(stop - start for start, stop in pairwise(cuts)), tuple(calls)

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
        chunks, calls = self.calls
        tokens = [call.tokens for call in calls]
        keys, values = key.split(chunks, 2), value.split(chunks, 2)
        outputs = []
        for call, q, k, v in zip(calls, *(x.split(tokens, 2) for x in (query, key, value)), strict=True):
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

    # -- the same by kernels that know sequences of unequal length, or masks as a function

    @cached_property
    def _paths(self) -> list[list[int]]:
        """The segments on the path to each segment, itself included."""
        return [[*reversed(ancestors(index, self.parents)), index] for index in range(len(self.sizes))]

    def along_paths(self, x: torch.Tensor) -> torch.Tensor:
        """Return keys or values (1, heads, T, d) of each segment's whole path, one path after the other."""
        pieces = x.split(self.sizes, 2)
        return torch.cat([pieces[index] for path in self._paths for index in path], 2)

    @cached_property
    def lengths(self) -> dict[str, Any]:
        """Options of flash attention: each segment is a sequence of queries, its path that of keys.

        Causal attention then aligns the last query with the last key.
        """
        queries, keys = self.sizes, [sum(self.sizes[index] for index in path) for path in self._paths]
        options: dict[str, Any] = {"max_length_q": max(queries), "max_length_k": max(keys)}
        for name, tokens in (("cu_seq_lens_q", queries), ("cu_seq_lens_k", keys)):
            options[name] = torch.tensor([0, *accumulate(tokens)], dtype=torch.int32, device=self.device)
        return options

    @cached_property
    def block_mask(self) -> BlockMask:
        """The mask of FlexAttention, which skips blocks in which no token attends to another."""
        ends: list[int] = [0] * len(self.sizes)  # of each segment's subtree: segments are in depth-first order
        for path, stop in zip(self._paths, accumulate(self.sizes), strict=True):
            for index in path:
                ends[index] = stop
        end = torch.tensor(ends).repeat_interleave(torch.tensor(self.sizes)).to(self.device)

        def visible(_: Any, head: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return (key <= query) & (query < end[key])

        return create_block_mask(visible, None, None, len(end), len(end), device=str(self.device))


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
