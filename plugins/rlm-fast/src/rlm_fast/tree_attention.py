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
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int

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


def ancestors(index: int, parents: Sequence[int]) -> list[int]:
    """Return the segments before a segment, from its parent to the root."""
    path: list[int] = []
    index = parents[index]
    while index >= 0:
        path.append(index)
        index = parents[index]
    return path
