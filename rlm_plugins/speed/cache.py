"""A cache of keys and values that keeps room for the tokens to come, instead of being copied for each of them."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

ROOM = 64
"""Tokens that a layer makes room for at a time."""


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """A layer whose keys and values (rows, heads, tokens, d) are the front of longer tensors."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes the keys and values of the next tokens in, and returns those of all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._whole = [x.new_empty(*x.shape[:2], 0, x.shape[3]) for x in (key_states, value_states)]
            self.keys, self.values = self._whole
        first = self.keys.shape[2]
        last = first + key_states.shape[2]
        if last > self._whole[0].shape[2]:
            self._whole = [_longer(x[:, :, :first], last + ROOM) for x in self._whole]
        for whole, new in zip(self._whole, (key_states, value_states), strict=True):
            whole[:, :, first:last] = new
        self._show(last)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps these rows, in this order; a row may be kept several times."""
        self._whole = [x.index_select(0, indices) for x in self._whole]
        self._show(self.keys.shape[2])

    def _show(self, tokens: int) -> None:
        self.keys, self.values = (x[:, :, :tokens] for x in self._whole)


def _longer(x: torch.Tensor, tokens: int) -> torch.Tensor:
    found = x.new_empty(*x.shape[:2], tokens, x.shape[3])
    found[:, :, : x.shape[2]] = x
    return found


def has_plain_layers(cache: Any) -> bool:
    """Whether a cache keeps every token of every row, layer by layer, and nothing else."""
    return type(cache) is DynamicCache and all(type(layer) is DynamicLayer for layer in cache.layers)


def make_roomy(cache: DynamicCache) -> None:
    """Gives an empty cache with plain layers layers that keep room."""
    cache.layers = [RoomyLayer() for _ in cache.layers]
