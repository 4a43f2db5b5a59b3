"""State of decoding before the next token: KV cache, positions and padding mask.

The KV cache of a prompt is shared by its sequences while that is faster (`prefix_attention.py`), then copied to each.
The same holds for the common prefix of all prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Int

from rlm_fast.kv_cache import evict
from rlm_fast.prefix_attention import KeysValues, SharedPrefix, attend_all, sharing_pays
from rlm_fast.small_calls import threads_for


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
            lowest = torch.finfo(torch.float32).min
            zeros = torch.zeros(attention_mask.shape, device=attention_mask.device)
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
        """Advance positions and mask by one token."""
        self.position = self.position + 1
        if self._mask is not None:
            self._mask = F.pad(self._mask, (0, 1))

    def evict(self, indices: torch.Tensor) -> None:
        """Keep the sequences at `surviving_indices`."""
        evict(self._cache, indices)
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
