"""Attention over a shared prompt prefix: two softmaxes, over the prompt and over own tokens, combined exactly.

    o = w o_prompt + (1 - w) o_own,    w = σ(z_prompt - z_own),    z = log Σ exp(scores)

The sequences of a prompt are stacked as queries of one product, which loads the keys of the prompt once for all of
them. That takes a few more calls, and pays off for many sequences per prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int

MIN_SAVED = 3 * 2**15
"""Numbers of keys in a layer that sharing must save to be faster in spite of the additional calls."""

KeysValues = tuple[torch.Tensor, torch.Tensor]
"""Keys and values (D, heads, P, d) of the D distinct prompts."""


class SharedPrompts:
    """KV cache of distinct prompts, shared by their sequences.

    Args:
        kv: Keys and values of the prompts, layer by layer.
        prompt_of: (L,) index of the prompt of each sequence.
        mask: (L, 1, 1, P or more) added to the scores: a large negative number on padding; None: no padding.
    """

    def __init__(
        self,
        kv: Sequence[KeysValues],
        prompt_of: Int[torch.Tensor, "L"],  # noqa: F821
        mask: Float[torch.Tensor, "L 1 1 _"] | None,
    ) -> None:
        in_use, self.prompt_of = prompt_of.unique(return_inverse=True)
        all_in_use = len(in_use) == len(kv[0][0])
        self.kv = list(kv) if all_in_use else [(keys[in_use], values[in_use]) for keys, values in kv]
        self._assign_slots()
        tokens = kv[0][0].shape[2]
        self._mask = None if mask is None else mask[self._sequence_of_slot[:: self._slots], ..., :tokens]

    def _assign_slots(self) -> None:
        """Give the sequences of a prompt consecutive slots; the output of unused slots is discarded."""
        counts = self.prompt_of.bincount()
        order = self.prompt_of.argsort(stable=True)
        slots = int(counts.max())
        rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[self.prompt_of[order]]
        self._slots, self._slot_of = slots, torch.empty_like(order)
        self._slot_of[order] = self.prompt_of[order] * slots + rank
        self._sequence_of_slot = order.new_zeros(len(counts) * slots)
        self._sequence_of_slot[self._slot_of] = torch.arange(len(order), device=order.device)

    def select(self, indices: torch.Tensor, mask: torch.Tensor | None) -> SharedPrompts:
        """Return the prompts of the sequences at `indices`; `mask` is that of these sequences."""
        return SharedPrompts(self.kv, self.prompt_of[indices], mask)

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Return the attention output of a layer, in the shape of `query`.

        Args:
            layer: Index of the layer.
            query: (L, key heads, query heads per key head, d).
            keys: (L, key heads, T, d) of the tokens after the prompt.
            values: (L, key heads, T, d).
            scale: Factor of the attention scores.
        """
        heads, queries, d = query.shape[1:]
        # The memory order of the output: the sequences of a prompt become one batch entry without a copy.
        query = query.transpose(1, 2)
        stacked = query.index_select(0, self._sequence_of_slot).view(-1, self._slots * queries, heads, d)
        prompt, z = _attend(stacked, *self.kv[layer], self._mask, scale)
        own, own_z = _attend(query, keys, values, None, scale)
        prompt, z = (x.reshape(len(self._sequence_of_slot), -1).index_select(0, self._slot_of) for x in (prompt, z))
        weight = (z.view(own_z.shape) - own_z).sigmoid_().unsqueeze(-1)
        return own.lerp(prompt.view(own.shape), weight).transpose(1, 2)


def sharing_pays(prompt_of: torch.Tensor, keys: torch.Tensor) -> bool:
    """Return True if decoding is faster with one KV cache per distinct prompt.

    Args:
        prompt_of: (L,) index of the prompt of each sequence.
        keys: (D, heads, P, d) of a layer.
    """
    return keys.device.type == "cpu" and (len(prompt_of) - len(keys)) * keys[0].numel() >= MIN_SAVED


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> KeysValues:
    """Return output and log-sum-exp of PyTorch's CPU attention; `query` and results have the heads third."""
    output, z = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query.transpose(1, 2), keys, values, attn_mask=mask, scale=scale
    )
    return output.transpose(1, 2), z.transpose(1, 2)
