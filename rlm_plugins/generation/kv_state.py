"""What was before a token: keys and values, where it stands, and what is padding.

Keys and values of a prompt are kept once while that pays (`shared.py`), and then copied to each row that is left.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int

from rlm_plugins.generation.kv_cache import keep
from rlm_plugins.generation.prefix_attention import Prompts, pays


class KVState:
    """Of rows whose prompts have been read.

    Args:
        given: What the model would be called with for the next token of each row. Its cache, in layers that keep room,
            has the distinct prompts.
        twin: (L,) which of these each row goes on from.

    Attributes:
        place: (L, 1) position of the next token.
    """

    def __init__(self, given: dict[str, Any], twin: Int[torch.Tensor, "L"]) -> None:  # noqa: F821
        there = given.get("attention_mask")
        self.place, self._mask = given["position_ids"][:, -1:].expand(len(twin), 1), None
        if there is not None and not there.all():
            least = torch.finfo(torch.float32).min  # no -∞: an empty prompt has nothing else
            self._mask = torch.zeros(there.shape, device=there.device).masked_fill_(there == 0, least)[:, None, None]
        self._cache, self._prompts = given["past_key_values"], None
        if pays(twin, self._cache.layers[0].keys):
            self._prompts = Prompts([layer.take_out() for layer in self._cache.layers], twin, self._mask)
        else:
            self._cache.batch_select_indices(twin)

    def seen(
        self, number: int, asked: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """What the next token of each row sees in a layer, which keeps its key and value.

        Args:
            number: Of the layer.
            asked: (L, heads, queries, d), heads that share keys stand where tokens do.
            key: (L, heads, 1, d).
            value: Likewise.
            scale: Of the scores.
        """
        keys, values = self._cache.layers[number].update(key, value)
        if self._prompts is not None:
            return self._prompts.seen(number, asked, keys, values, scale)
        return F.scaled_dot_product_attention(asked, keys, values, attn_mask=self._mask, scale=scale)

    def go_on(self) -> None:
        """A token later."""
        self.place = self.place + 1
        if self._mask is not None:
            self._mask = F.pad(self._mask, (0, 1))

    def keep(self, places: torch.Tensor) -> None:
        """Keeps the rows at these places, as `survivors` chose them."""
        keep(self._cache, places)
        self.place = self.place[places]
        if self._mask is not None:
            self._mask = self._mask[places]
        if self._prompts is not None:
            self._prompts = self._prompts.keep(places, self._mask)
            if not pays(self._prompts.twin, self._prompts.kept[0][0]):
                self._copy(self._prompts)

    def _copy(self, prompts: Prompts) -> None:
        """To each row its own."""
        self._prompts = None
        for layer in self._cache.layers:
            layer.put_before(*(x[prompts.twin] for x in prompts.kept.pop(0)))
