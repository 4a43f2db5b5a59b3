"""Attention over shared prefixes: one softmax over each prefix and one over own tokens, combined exactly.

    o = w o_prefix + (1 - w) o_own,    w = σ(z_prefix - z_own),    z = log Σ exp(scores)

The sequences of a prefix are stacked as queries of one product, which loads the keys of the prefix once for all of
them. That takes a few more calls, and pays off for many sequences per prefix. There are up to two: what all prompts
start with, and the rest of each prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int

from rlm_fast.cpu_linear import threads_for

MIN_SAVED = 3 * 2**15
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
    return keys[0].device.type == "cpu" and copies * sum(x[0].numel() for x in keys) >= MIN_SAVED


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
        output = output.lerp(other, (other_z - z).sigmoid_().unsqueeze(-1))
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
