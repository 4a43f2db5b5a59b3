"""Prefix tree of token sequences, and attention over it in one packed sequence, in which shared tokens occur once.

::

    q u a b e        segments  0: q u    parents  -
    q u c d d e                1: a b e           0
    q u c d f g                2: c d             0
                               3: d e             2
                               4: f g             2

Segments are in depth-first order, so each sequence is a path, and a parent comes before its children. A token attends
to the tokens on its path from the root.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch.nn.functional import scaled_dot_product_attention

from rlm_fast import linear_layers
from rlm_fast.linear_layers import threads_for

MIN_SHARED_KEYS = 3 * 2**15
"""Numbers of keys in a layer that sharing must save to be faster in spite of the additional calls."""

KeysValues = tuple[torch.Tensor, torch.Tensor]
"""Keys and values (D, heads, P, d) of the D distinct prompts."""


class SharedPrefix:
    """KV cache of distinct prefixes, shared by their sequences.

    Args:
        kv: Keys and values of the prefixes, layer by layer.
        prefix_of: (L,) index of the prefix of each sequence.
        mask: (L, 1, 1, P or more) added to the scores: a large negative number on padding; None: no padding.
    """

    def __init__(
        self,
        kv: Sequence[KeysValues],
        prefix_of: Int[torch.Tensor, "L"],  # noqa: F821
        mask: Float[torch.Tensor, "L 1 1 _"] | None,
    ) -> None:
        in_use, self.prefix_of = prefix_of.unique(return_inverse=True)
        all_in_use = len(in_use) == len(kv[0][0])
        self.kv = list(kv) if all_in_use else [(keys[in_use], values[in_use]) for keys, values in kv]
        self._assign_slots()
        self.tokens = kv[0][0].shape[2]
        self._mask = None if mask is None else mask[self._sequence_of_slot[:: self._slots], ..., : self.tokens]

    def _assign_slots(self) -> None:
        """Give the sequences of a prefix consecutive slots; the output of unused slots is discarded."""
        counts = self.prefix_of.bincount()
        order = self.prefix_of.argsort(stable=True)
        slots = int(counts.max())
        rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[self.prefix_of[order]]
        self._slots, self._slot_of = slots, torch.empty_like(order)
        self._slot_of[order] = self.prefix_of[order] * slots + rank
        self._sequence_of_slot = order.new_zeros(len(counts) * slots)
        self._sequence_of_slot[self._slot_of] = torch.arange(len(order), device=order.device)

    def select(self, indices: torch.Tensor, mask: torch.Tensor | None) -> SharedPrefix:
        """Return the prefixes of the sequences at `indices`; `mask` is that of these sequences."""
        return SharedPrefix(self.kv, self.prefix_of[indices], mask)

    def attend(self, layer: int, query: torch.Tensor, scale: float) -> KeysValues:
        """Return the attention output of a layer over the prefixes, and its log-sum-exp.

        Args:
            layer: Index of the layer.
            query: (L, queries, heads, d).
            scale: Factor of the attention scores.
        """
        queries, heads, d = query.shape[1:]
        stacked = query.index_select(0, self._sequence_of_slot).view(-1, self._slots * queries, heads, d)
        pair = attend(stacked, *self.kv[layer], self._mask, scale)
        output, z = (x.reshape(len(self._sequence_of_slot), -1).index_select(0, self._slot_of) for x in pair)
        return output.view(query.shape), z.view(query.shape[:-1])


def sharing_pays(copies: int, *keys: torch.Tensor) -> bool:
    """Return True if decoding is faster without further copies of a prefix.

    Args:
        copies: Copies that sharing saves.
        *keys: (D, heads, P, d) of a layer: the pieces of the prefix.
    """
    return keys[0].device.type == "cpu" and copies * sum(x[0].numel() for x in keys) >= MIN_SHARED_KEYS


def attend_all(
    prefixes: Sequence[SharedPrefix],
    layer: int,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    """Return the attention output of a layer over prefixes and own tokens, in the shape of `query`.

    Args:
        prefixes: The prefixes, at least one.
        layer: Index of the layer.
        query: (L, key heads, query heads per key head, d).
        keys: (L, key heads, T, d) of the tokens after the prefixes.
        values: (L, key heads, T, d).
        mask: (L, 1, 1, T) added to the scores of own tokens, or None.
        scale: Factor of the attention scores.
    """
    # The memory order of the output: the sequences of a prefix become one batch entry without a copy.
    query = query.transpose(1, 2)
    output, z = attend(query, keys, values, mask, scale)
    for prefix in prefixes:
        other, other_z = prefix.attend(layer, query, scale)
        output = output.lerp(other, (other_z - z).sigmoid_().unsqueeze(-1).to(output.dtype))
        z = torch.logaddexp(z, other_z) if len(prefixes) > 1 else z
    return output.transpose(1, 2)


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> KeysValues:
    """Return output and log-sum-exp of PyTorch's CPU attention; `query` and results have the heads third."""
    with threads_for(2 * query.numel() * keys.shape[2]):
        output, z = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query.transpose(1, 2), keys, values, attn_mask=mask, scale=scale
        )
    return output.transpose(1, 2), z.transpose(1, 2)


MIN_SAVED = 8
"""Least tokens that a shared segment must save; fewer do not pay for another branch."""


@dataclass(frozen=True)
class Segment:
    """Consecutive tokens of a tree without a branch.

    Args:
        sequence: Index of a sequence that holds them.
        start: Index of their first token in it.
        stop: Index after their last token.
        parent: Index of the segment before; -1: none.
    """

    sequence: int
    start: int
    stop: int
    parent: int


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


def prefix_tree(
    sequences: Sequence[Sequence[int]], keys: Sequence[Hashable] | None = None, min_saved: int = MIN_SAVED
) -> tuple[list[Segment], list[int]]:
    """Return the segments of the tree, and the last segment of each sequence.

    >>> segments, last = prefix_tree([[7, 8, 1], [7, 8, 2, 3], [7, 8, 1]], min_saved=1)
    >>> [(x.sequence, x.start, x.stop, x.parent) for x in segments], last
    ([(0, 0, 2, -1), (0, 2, 3, 0), (1, 2, 4, 0)], [1, 2, 1])
    """
    segments: list[Segment] = []
    last = [-1] * len(sequences)
    roots = _grouped(range(len(sequences)), keys or [None] * len(sequences))
    pending = [(members, 0, -1) for members in reversed(roots)]
    while pending:
        members, start, parent = pending.pop()
        stop = common_length([sequences[member] for member in members], start)
        complete = [member for member in members if len(sequences[member]) == stop]
        longer = [member for member in members if len(sequences[member]) > stop]
        branches = _grouped(longer, {member: sequences[member][stop] for member in longer})
        extra_branches = len(branches) + bool(complete) - 1
        if extra_branches == 0 or extra_branches * (stop - start) >= min_saved:
            segments.append(Segment(members[0], start, stop, parent))
            parent, start = len(segments) - 1, stop
            for member in complete:
                last[member] = parent
        elif complete:
            branches.insert(0, complete)
        pending += [(branch, start, parent) for branch in reversed(branches)]
    return segments, last


def common_length(sequences: Sequence[Sequence[int]], start: int = 0) -> int:
    """Return the length of the common prefix of all sequences, of which the first `start` tokens are not compared.

    >>> common_length([[7, 8, 1], [7, 8, 2, 3]])
    2
    """
    first = sequences[0]
    stop = min(map(len, sequences))
    if all(sequence[start:stop] == first[start:stop] for sequence in sequences):
        return stop
    columns = enumerate(zip(*(sequence[start:stop] for sequence in sequences), strict=True), start)
    return next(index for index, tokens in columns if len(set(tokens)) > 1)


def _grouped(members: Sequence[int], keys: Sequence[Hashable] | dict[int, Hashable]) -> list[list[int]]:
    """Return the members by key, in order of first appearance."""
    groups: dict[Hashable, list[int]] = {}
    for member in members:
        groups.setdefault(keys[member], []).append(member)
    return list(groups.values())


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


def ancestors(index: int, parents: Sequence[int]) -> list[int]:
    """Return the segments before a segment, from its parent to the root."""
    path: list[int] = []
    index = parents[index]
    while index >= 0:
        path.append(index)
        index = parents[index]
    return path


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
