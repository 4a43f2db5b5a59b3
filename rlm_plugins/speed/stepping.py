"""One token of each row through a decoder of Llama's kind, written down: a third of the calls that its modules make.

    h = x + O · attention(RoPE(Q n), RoPE(K n), V n),    n = norm(x)
    y = h + D · (act(G m) ⊙ U m),                        m = norm(h)

No weight is copied. What is of another kind (`pieces.py`), or does not give the model's own logits (`same_step.py`), is
called module by module, as ever.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from transformers.cache_utils import DynamicCache

from rlm_plugins.speed.cache import RoomyLayer
from rlm_plugins.speed.pieces import OF_HEADS, made_of, norm, parts_of, plain, product, words


class Step:
    """Reads one token of each row, with the weights as they are now.

    Args:
        model: With or without adapters; these must have been added to their base (`merging.merged`).

    Raises:
        Other: It is of another kind.
    """

    def __init__(self, model: Any) -> None:
        decoder, head = parts_of(model)
        self._words, self._angles = words(decoder.embed_tokens), plain(decoder.rotary_emb)
        self._layers = [Layer(layer) for layer in decoder.layers]
        self._norm, self._head = norm(decoder.norm), product(head)

    def __call__(
        self,
        token: Int[torch.Tensor, "L"],  # noqa: F821
        place: Int[torch.Tensor, "L 1"],
        mask: Float[torch.Tensor, "L 1 1 T"] | None,
        cache: DynamicCache,
    ) -> Float[torch.Tensor, "L V"]:
        """Logits of the token after these.

        Args:
            token: The last of each row.
            place: Its position.
            mask: Added where tokens are attended to: -∞ on padding; None: there is none.
            cache: The tokens before, in layers that keep room; takes these in.
        """
        x = F.embedding(token, self._words)
        cos, sin = self._angles(x, place)
        half = sin.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)  # x₁ gets -x₂ sin, x₂ gets x₁ sin
        for layer, kept in zip(self._layers, cache.layers, strict=True):
            x = layer(x, cos, sin, mask, kept)
        return F.linear(F.rms_norm(x, *self._norm), *self._head)

    @staticmethod
    def first(given: dict[str, Any], rows: int) -> dict[str, Any]:
        """What it is called with after the prompts of rows, from what the model would be."""
        there, mask = given.get("attention_mask"), None
        if there is not None and not there.all():
            mask = torch.zeros(there.shape, device=there.device).masked_fill_(there == 0, -torch.inf)[:, None, None]
        place = given["position_ids"][:, -1:].expand(rows, 1)
        return {"place": place, "mask": mask, "cache": given["past_key_values"]}

    @staticmethod
    def after(given: dict[str, Any]) -> dict[str, Any]:
        """And a token later."""
        mask = given["mask"]
        return {**given, "place": given["place"] + 1, "mask": None if mask is None else F.pad(mask, (0, 1))}


class Layer:
    """One layer of such a model.

    Args:
        layer: As transformers made it.
    """

    def __init__(self, layer: Any) -> None:
        attention, mlp = made_of(made_of(layer, "layer").self_attn, "attention", {*OF_HEADS}), made_of(layer.mlp, "mlp")
        self.before, self.after = norm(layer.input_layernorm), norm(layer.post_attention_layernorm)
        self.q, self.k, self.v, self.out = (product(getattr(attention, f"{x}_proj")) for x in "qkvo")
        self.of_heads = [norm(getattr(attention, x)) for x in OF_HEADS if hasattr(attention, x)]
        self.scale, self.d, self.groups = attention.scaling, attention.head_dim, len(self.k[0]) // attention.head_dim
        self.gate, self.up, self.down = (product(getattr(mlp, f"{x}_proj")) for x in ("gate", "up", "down"))
        self.act = plain(mlp.act_fn)

    def __call__(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor | None, kept: RoomyLayer
    ) -> torch.Tensor:
        """y (L, D) from x (L, D)."""
        h = x + self._attended(F.rms_norm(x, *self.before), cos, sin, mask, kept)
        m = F.rms_norm(h, *self.after)
        return h + F.linear(self.act(F.linear(m, *self.gate)) * F.linear(m, *self.up), *self.down)

    def _attended(
        self, n: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor | None, kept: RoomyLayer
    ) -> torch.Tensor:
        rows, d = n.shape[0], self.d
        q, k, v = (F.linear(n, *it).view(rows, -1, d) for it in (self.q, self.k, self.v))
        if self.of_heads:
            q, k = (F.rms_norm(it, *how) for it, how in zip((q, k), self.of_heads, strict=True))
        heads = torch.cat([q, k], 1)
        heads = torch.addcmul(heads * cos, heads.roll(d // 2, -1), sin)
        count = q.shape[1]
        keys, values = kept.update(heads[:, count:].unsqueeze(2), v.unsqueeze(2))
        asked = heads[:, :count].view(rows, self.groups, -1, d)  # heads that share keys stand where tokens do
        seen = F.scaled_dot_product_attention(asked, keys, values, attn_mask=mask, scale=self.scale)
        return F.linear(seen.reshape(rows, -1), *self.out)
