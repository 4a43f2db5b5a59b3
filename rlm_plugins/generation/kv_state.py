"""State of decoding before the next token: KV cache, positions and padding mask.

The KV cache of a prompt is shared by its sequences while that is faster (`prefix_attention.py`), then copied to each.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Int

from rlm_plugins.generation.kv_cache import evict
from rlm_plugins.generation.prefix_attention import SharedPrompts, sharing_pays


class KVState:
    """State of sequences after the prefill of their prompts.

    Args:
        model_kwargs: Inputs of the model for the next token of each sequence. Its cache has preallocated layers and
            holds the distinct prompts.
        prompt_of: (L,) index of the distinct prompt of each sequence.

    Attributes:
        position: (L, 1) position of the next token.
    """

    def __init__(self, model_kwargs: dict[str, Any], prompt_of: Int[torch.Tensor, "L"]) -> None:  # noqa: F821
        attention_mask = model_kwargs.get("attention_mask")
        self.position, self._mask = model_kwargs["position_ids"][:, -1:].expand(len(prompt_of), 1), None
        if attention_mask is not None and not attention_mask.all():
            # The lowest finite number, since −∞ would be NaN for an empty prompt, which is padding only.
            lowest = torch.finfo(torch.float32).min
            zeros = torch.zeros(attention_mask.shape, device=attention_mask.device)
            self._mask = zeros.masked_fill_(attention_mask == 0, lowest)[:, None, None]
        self._cache, self._prompts = model_kwargs["past_key_values"], None
        if sharing_pays(prompt_of, self._cache.layers[0].keys):
            self._prompts = SharedPrompts([layer.pop() for layer in self._cache.layers], prompt_of, self._mask)
        else:
            self._cache.batch_select_indices(prompt_of)

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
        if self._prompts is not None:
            return self._prompts.attend(layer, query, keys, values, scale)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=self._mask, scale=scale)

    def advance(self) -> None:
        """Move positions and mask on by one token."""
        self.position = self.position + 1
        if self._mask is not None:
            self._mask = F.pad(self._mask, (0, 1))

    def evict(self, indices: torch.Tensor) -> None:
        """Keep the sequences at `surviving_indices`."""
        evict(self._cache, indices)
        self.position = self.position[indices]
        if self._mask is not None:
            self._mask = self._mask[indices]
        if self._prompts is not None:
            self._prompts = self._prompts.select(indices, self._mask)
            # With few sequences left per prompt the additional calls cost more than they save.
            if not sharing_pays(self._prompts.prompt_of, self._prompts.kv[0][0]):
                self._copy_prompts(self._prompts)

    def _copy_prompts(self, prompts: SharedPrompts) -> None:
        """Copy the KV cache of the prompts to each sequence, and free it layer by layer."""
        self._prompts = None
        for layer in self._cache.layers:
            layer.prepend(*(x[prompts.prompt_of] for x in prompts.kv.pop(0)))
