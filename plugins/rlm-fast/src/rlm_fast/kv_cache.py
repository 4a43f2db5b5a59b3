"""KV cache that allocates memory ahead, instead of copying all keys and values at each token."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

BLOCK = 64
"""Most tokens that a layer allocates memory for at a time."""


class PreallocatedLayer(DynamicLayer):  # type: ignore[misc]
    """Cache layer whose keys and values (L, heads, T, d) are views into longer tensors; `crop` only shortens views.

    Args:
        block: Tokens that memory is allocated for at a time.
    """

    def __init__(self, block: int = BLOCK) -> None:
        super().__init__()
        self._block = block

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the keys and values of new tokens and return those of all tokens."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = [x.new_empty(*x.shape[:2], 0, x.shape[3]) for x in (key_states, value_states)]
            self.keys, self.values = self._buffers
        length, new = self.keys.shape[2], key_states.shape[2]
        # Views grow within the buffer; it is copied only once per block.
        if length + new > self._buffers[0].shape[2]:
            self._buffers = [_extended(x.narrow(2, 0, length), length + new + self._block) for x in self._buffers]
        keys, values = self._buffers
        keys.narrow(2, length, new).copy_(key_states)
        values.narrow(2, length, new).copy_(value_states)
        self._set_length(length + new)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Select sequences by index, in this order; an index may occur several times."""
        if self.is_initialized:  # the model may not use every layer
            self._buffers = [x.index_select(0, indices) for x in self._buffers]
            self._set_length(self.keys.shape[2])

    def evict(self, count: int, target: torch.Tensor, source: torch.Tensor) -> None:
        """Move sequences `source` to the places `target`, then keep the first `count`.

        The buffers keep their memory until the next allocation, so that few sequences are copied.
        """
        if self.is_initialized:
            tokens = self.keys.shape[2]
            for x in self._buffers:
                x[target, :, :tokens] = x[source, :, :tokens]
            self._buffers = [x[:count] for x in self._buffers]
            self._set_length(tokens)

    def pop(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values and empty the layer; the next update may have another batch size."""
        self.is_initialized = False
        return self.keys, self.values

    def prepend(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Insert keys and values of earlier tokens before those of the layer."""
        own = self.pop() if self.is_initialized else None
        self.update(keys, values)
        if own is not None:
            self.update(*own)

    def _set_length(self, tokens: int) -> None:
        self.keys, self.values = (x.narrow(2, 0, tokens) for x in self._buffers)


def _extended(x: torch.Tensor, tokens: int) -> torch.Tensor:
    """Return a copy of keys or values with memory for `tokens` tokens."""
    buffer = x.new_empty(*x.shape[:2], tokens, x.shape[3])
    buffer[:, :, : x.shape[2]] = x
    return buffer


def has_plain_layers(cache: Any) -> bool:
    """Return True if a cache is a `DynamicCache` whose layers all keep every token."""
    return type(cache) is DynamicCache and all(type(layer) is DynamicLayer for layer in cache.layers)


def preallocate(cache: DynamicCache, new_tokens: int = BLOCK) -> None:
    """Replace the layers of an empty cache by `PreallocatedLayer`; at most `new_tokens` are decoded."""
    cache.layers = [PreallocatedLayer(min(new_tokens, BLOCK)) for _ in cache.layers]


def surviving_indices(done: torch.Tensor) -> torch.Tensor:
    """Return the indices of unfinished sequences (L,), so that as few as possible change place.

    The last unfinished sequences fill the places of finished ones.

    Args:
        done: (B,) True for finished sequences.

    >>> surviving_indices(torch.tensor([False, True, False, True, False]))
    tensor([0, 4, 2])
    """
    count = int((~done).sum())
    indices = torch.arange(count, device=done.device)
    indices[done[:count]] = (~done[count:]).nonzero().squeeze(1) + count
    return indices


def evict(cache: DynamicCache, indices: torch.Tensor) -> None:
    """Keep the sequences at `surviving_indices` in a preallocated cache."""
    target = (indices != torch.arange(len(indices), device=indices.device)).nonzero().squeeze(1)
    for layer in cache.layers:
        layer.evict(len(indices), target, indices[target])
