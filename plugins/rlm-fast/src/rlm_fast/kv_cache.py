"""KV cache of decoding: memory is allocated ahead, and prompts are shared.

The KV cache of a prompt is shared by its sequences while that is faster (`tree_attention.py`), then copied to each.
The same holds for the common prefix of all prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, Int
from transformers.cache_utils import DynamicCache, DynamicLayer

from rlm_fast.linear_layers import threads_for
from rlm_fast.packed_attention import TreeAttention
from rlm_fast.tree_attention import (
    KeysValues,
    SharedPrefix,
    ancestors,
    attend_all,
    common_length,
    prefix_tree,
    sharing_pays,
)

BLOCK = 64
"""Most tokens that a layer allocates memory for at a time."""


class PreallocatedLayer(DynamicLayer):  # type: ignore[misc]
    """Cache layer whose keys and values (L, heads, T, d) are views into longer tensors; `crop` only shortens views."""

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


def surviving_indices(done: Sequence[bool]) -> list[int]:
    """Return the indices of unfinished sequences, so that as few as possible change place.

    The last unfinished sequences fill the places of finished ones.

    >>> surviving_indices([False, True, False, True, False])
    [0, 4, 2]
    """
    count = done.count(False)
    moved = (index for index in range(count, len(done)) if not done[index])
    return [next(moved) if is_done else index for index, is_done in enumerate(done[:count])]


def evict(cache: DynamicCache, indices: Sequence[int], device: torch.device) -> None:
    """Keep the sequences at `surviving_indices` in a preallocated cache."""
    target = [place for place, index in enumerate(indices) if place != index]
    moved = [on_device(x, device) for x in (target, [indices[place] for place in target])]
    for layer in cache.layers:
        layer.evict(len(indices), *moved)


def on_device(indices: Sequence[int], device: torch.device) -> torch.Tensor:
    """Return indices as a tensor, without waiting for a GPU."""
    return torch.tensor(indices, dtype=torch.long).to(device, non_blocking=True)


class KVState:
    """State of sequences after the prefill of their prompts.

    Args:
        cache: Has preallocated layers and holds the distinct prompts, without `common`.
        prompt_of: (L,) index of the distinct prompt of each sequence.
        position: (L, 1) position of the next token.
        attention_mask: (L, P + 1) 0 on padding, with columns for `common`, the prompts and the next token; or None.
        common: Keys and values (1, heads, C, d) of the tokens that all prompts start with, layer by layer.

    Attributes:
        position: (L, 1) position of the next token.
    """

    def __init__(
        self,
        cache: Any,
        prompt_of: Int[torch.Tensor, "L"],  # noqa: F821
        position: Int[torch.Tensor, "L 1"],
        attention_mask: Int[torch.Tensor, "L _"] | None,
        common: Sequence[KeysValues] = (),
    ) -> None:
        self.position, self._mask = position, None
        if attention_mask is not None and not attention_mask.all():
            # The lowest finite number, since −∞ would be NaN for an empty prompt, which is padding only.
            dtype = cache.layers[0].keys.dtype
            lowest = torch.finfo(dtype).min
            zeros = torch.zeros(attention_mask.shape, device=attention_mask.device, dtype=dtype)
            self._mask = zeros.masked_fill_(attention_mask == 0, lowest)[:, None, None]
        self._cache = cache
        self._common, self._prompts = None, None
        tokens = common[0][0].shape[2] if common else 0
        if common:
            self._common = SharedPrefix(common, torch.zeros_like(prompt_of), None)
        keys = cache.layers[0].keys
        if sharing_pays(len(prompt_of) - len(keys), keys, *(common[0][:1] if common else ())):
            rest = None if self._mask is None else self._mask[..., tokens:]
            self._prompts = SharedPrefix([layer.pop() for layer in cache.layers], prompt_of, rest)
        else:
            cache.batch_select_indices(prompt_of)
        self._copy_what_does_not_pay()

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Append the key and value of the next token to a layer and return the attention output.

        Args:
            layer: Index of the layer.
            query: (L, key heads, query heads per key head, d).
            key: (L, key heads, 1, d).
            value: (L, key heads, 1, d).
            scale: Factor of the attention scores.

        Returns:
            Same shape as `query`.
        """
        keys, values = self._cache.layers[layer].update(key, value)
        prefixes = [prefix for prefix in (self._common, self._prompts) if prefix is not None]
        mask = None if self._mask is None else self._mask[..., sum(prefix.tokens for prefix in prefixes) :]
        if prefixes:
            # the tokens after the prefixes have no padding, unless they include those of the prompt
            suffix_mask = mask if self._prompts is None else None
            return attend_all(prefixes, layer, query, keys, values, suffix_mask, scale)
        with threads_for(2 * query.numel() * keys.shape[2]):
            return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)

    def advance(self) -> None:
        self.position = self.position + 1
        if self._mask is not None:
            self._mask = F.pad(self._mask, (0, 1))

    def evict(self, rows: Sequence[int]) -> None:
        """Keep the sequences at `surviving_indices`."""
        evict(self._cache, rows, self.position.device)
        indices = on_device(rows, self.position.device)
        self.position = self.position[indices]
        if self._mask is not None:
            self._mask = self._mask[indices]
        tokens = 0
        if self._common is not None:
            self._common, tokens = self._common.select(indices, None), self._common.tokens
        if self._prompts is not None:
            self._prompts = self._prompts.select(indices, None if self._mask is None else self._mask[..., tokens:])
        self._copy_what_does_not_pay()

    def _copy_what_does_not_pay(self) -> None:
        """Copy prefixes that few sequences share to each of them: the additional calls cost more than they save."""
        prompts, common = self._prompts, self._common
        sequences = len(self.position)
        if prompts is not None:
            keys = [prefix.kv[0][0] for prefix in (prompts, common) if prefix is not None]
            if not sharing_pays(sequences - len(keys[0]), *keys):
                self._prompts = None
                for layer in self._cache.layers:
                    layer.prepend(*(x[prompts.prefix_of] for x in prompts.kv.pop(0)))
        holders = sequences if self._prompts is None else len(self._prompts.kv[0][0])
        if common is not None and not sharing_pays(holders - 1, common.kv[0][0]):
            self._common = None
            if self._prompts is None:
                for layer in self._cache.layers:
                    layer.prepend(*(x.expand(sequences, -1, -1, -1) for x in common.kv.pop(0)))
            else:
                kv = zip(common.kv, self._prompts.kv, strict=True)
                joined = [tuple(_joined(x, y) for x, y in zip(*pair, strict=True)) for pair in kv]
                self._prompts = SharedPrefix(joined, self._prompts.prefix_of, self._mask)  # type: ignore[arg-type]


def _joined(common: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
    """Return keys or values (D, heads, C + P, d) of whole prompts."""
    return torch.cat([common.expand(len(rest), -1, -1, -1), rest], 2)


def distinct_prompts(ids: torch.Tensor, attention_mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of the first occurrences of each prompt (D,) and the prompt of each sequence (B,).

    Args:
        ids: (B, P) token ids.
        attention_mask: (B, P), or None without padding.

    >>> distinct_prompts(torch.tensor([[7, 8], [7, 9], [7, 8]]), None)
    (tensor([0, 1]), tensor([0, 1, 0]))
    """
    numbers: dict[tuple[int, ...], int] = {}
    first: list[int] = []
    prompt_of: list[int] = []
    # Padding belongs to the key: the pad token may also occur as a token of a prompt.
    keys = ids if attention_mask is None else torch.cat([ids, attention_mask], 1)
    for index, key in enumerate(keys.tolist()):
        number = numbers.setdefault(tuple(key), len(numbers))
        if number == len(first):
            first.append(index)
        prompt_of.append(number)
    return torch.tensor(first, device=ids.device), torch.tensor(prompt_of, device=ids.device)


def unpadded(
    ids: torch.Tensor, attention_mask: torch.Tensor | None, position_ids: torch.Tensor | None
) -> list[list[int]] | None:
    """Return prompts without padding; None if one is empty, or if positions do not count from its first token.

    Args:
        ids: (D, P) token ids, padded on the left.
        attention_mask: (D, P), or None without padding.
        position_ids: (D, P) or (1, P), as transformers prepared them; other shapes are unsupported.
    """
    ids = ids.cpu()  # read once: each check and each prompt would wait for a GPU
    mask = torch.ones_like(ids) if attention_mask is None else attention_mask.cpu()
    if position_ids is None or position_ids.dim() != 2 or not mask.any(1).all():
        return None
    if ((position_ids.cpu() != mask.cumsum(1) - 1) & (mask != 0)).any():
        return None
    return [prompt[is_token].tolist() for prompt, is_token in zip(ids, mask.bool(), strict=True)]


def common_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Return the length of the common prefix of all prompts; at least one token of each prompt is excluded."""
    return min(common_length(prompts), min(map(len, prompts)) - 1)


@dataclass
class TreeState:
    """State of a pass over the tokens of all prompts, in place of `KVState`.

    Args:
        attention: Attention calls over the tree.
        position: (T, 1) position of each token.

    Attributes:
        kv: Keys and values (1, heads, T, d) of the layers so far.
    """

    attention: TreeAttention
    position: Int[torch.Tensor, "T 1"]
    kv: list[KeysValues] = field(default_factory=list)

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Keep the keys and values of a layer and return its attention output; shapes as in `KVState.attend`."""
        keys, values = (x.squeeze(2).transpose(0, 1).unsqueeze(0) for x in (key, value))
        self.kv.append((keys, values))
        heads = query.flatten(1, 2).transpose(0, 1).unsqueeze(0)
        return self.attention(heads, keys, values, scale).view(query.shape)

    def advance(self) -> None:
        """Do nothing: each token has its position."""


class PromptTree:
    """Distinct prompts as one sequence of tokens."""

    def __init__(self, prompts: Sequence[Sequence[int]], device: torch.device, min_saved: int) -> None:
        segments, last = prefix_tree(prompts, min_saved=min_saved)
        sizes = [segment.stop - segment.start for segment in segments]
        parents = [segment.parent for segment in segments]
        starts = [0, *accumulate(sizes)]
        tokens = [token for x in segments for token in prompts[x.sequence][x.start : x.stop]]
        positions = [position for x in segments for position in range(x.start, x.stop)]
        paths = [[*ancestors(index, parents)[::-1], index] for index in last]
        self._places = [[place for i in path for place in range(starts[i], starts[i + 1])] for path in paths]
        self._tokens = torch.tensor(tokens, device=device)
        self._position = torch.tensor(positions, device=device).unsqueeze(1)
        self._attention = TreeAttention(tuple(sizes), tuple(parents), device)
        self._common = common_tokens(prompts) if parents.count(-1) == 1 else 0

    def prefill(self, step: Any, cache: Any, prompt_of: torch.Tensor) -> tuple[Float[torch.Tensor, "D V"], KVState]:
        """Compute all prompts and return the logits of the next token of each, and the state for decoding.

        Args:
            step: `LlamaStep` of the model.
            cache: KV cache with empty preallocated layers, which get the keys and values of the prompts.
            prompt_of: (L,) index of the distinct prompt of each sequence.
        """
        state = TreeState(self._attention, self._position)
        ends = self._tokens.new_tensor([places[-1] for places in self._places])
        logits = step(self._tokens, state, ends)
        width = max(map(len, self._places)) - self._common
        rests = [places[self._common :] for places in self._places]
        index = self._tokens.new_tensor([[0] * (width - len(rest)) + rest for rest in rests])
        lengths = self._tokens.new_tensor([len(rest) for rest in rests])
        common: list[KeysValues] = []
        for layer in cache.layers:
            kv = state.kv.pop(0)
            if self._common:
                common.append(tuple(x[:, :, : self._common].contiguous() for x in kv))  # type: ignore[arg-type]
            layer.update(*(x[0][:, index].transpose(0, 1) for x in kv))
        columns = torch.arange(width, device=index.device)
        there = columns >= width - lengths.unsqueeze(1)
        mask = torch.cat([there.new_ones(len(there), self._common), there, there.new_ones(len(there), 1)], 1)
        position = (lengths + self._common).unsqueeze(1)
        return logits, KVState(cache, prompt_of, position[prompt_of], mask[prompt_of], common)
