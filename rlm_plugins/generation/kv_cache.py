"""A cache of keys and values that keeps room for the tokens to come, instead of being copied for each of them."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

ROOM = 64
"""Tokens that a layer makes room for at a time."""


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """A layer whose keys and values (rows, heads, tokens, d) are the front of longer tensors; `crop` makes room too."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes the keys and values of the next tokens in, and returns those of all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._whole = [x.new_empty(*x.shape[:2], 0, x.shape[3]) for x in (key_states, value_states)]
            self.keys, self.values = self._whole
        first, new = self.keys.shape[2], key_states.shape[2]
        if first + new > self._whole[0].shape[2]:
            self._whole = [_longer(x.narrow(2, 0, first), first + new + ROOM) for x in self._whole]
        keys, values = self._whole
        keys.narrow(2, first, new).copy_(key_states)
        values.narrow(2, first, new).copy_(value_states)
        self._show(first + new)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps these rows, in this order; a row may be kept several times."""
        if self.is_initialized:  # else the model does not use it
            self._whole = [x.index_select(0, indices) for x in self._whole]
            self._show(self.keys.shape[2])

    def keep(self, count: int, to: torch.Tensor, of: torch.Tensor) -> None:
        """Keeps `count` rows, after those `of` have taken the places `to`; memory follows when room is made next."""
        if self.is_initialized:
            tokens = self.keys.shape[2]
            for x in self._whole:
                x[to, :, :tokens] = x[of, :, :tokens]
            self._whole = [x[:count] for x in self._whole]
            self._show(tokens)

    def take_out(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Its keys and values, which it has no longer; the next may be of other rows."""
        self.is_initialized = False
        return self.keys, self.values

    def put_before(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Puts those of earlier tokens before its own."""
        own = self.take_out() if self.is_initialized else None
        self.update(keys, values)
        if own is not None:
            self.update(*own)

    def _show(self, tokens: int) -> None:
        self.keys, self.values = (x.narrow(2, 0, tokens) for x in self._whole)


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


def survivors(done: torch.Tensor) -> torch.Tensor:
    """The numbers of the rows that are not done (B,): whoever is gives its place to one of the last, and few move.

    >>> survivors(torch.tensor([False, True, False, True, False]))
    tensor([0, 4, 2])
    """
    left = int((~done).sum())
    places = torch.arange(left, device=done.device)
    places[done[:left]] = (~done[left:]).nonzero().squeeze(1) + left
    return places


def keep(cache: DynamicCache, places: torch.Tensor) -> None:
    """Keeps the rows at these places, as `survivors` chose them, in a cache that was made roomy."""
    to = (places != torch.arange(len(places), device=places.device)).nonzero().squeeze(1)
    for layer in cache.layers:
        layer.keep(len(places), to, places[to])
