"""One token of each row through a decoder of Llama's kind, written down: a third of the calls that its modules make.

    h = x + O · attention(RoPE(Q n), RoPE(K n), V n),    n = norm(x)
    y = h + D · (act(G m) ⊙ U m),                        m = norm(h)

What is of another kind (`pieces.py`), or does not give the model's own logits (`same_step.py`), is
called module by module, as ever.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int

from rlm_plugins.generation.kv_state import KVState
from rlm_plugins.generation.llama_modules import OF_HEADS, Norm, made_of, parts_of, plain, product_of, words


class Step:
    """Reads one token of each row, with the weights as they are now.

    Args:
        model: With or without adapters, which are added to their base (`merging.summed`).

    Raises:
        Other: It is of another kind.
    """

    def __init__(self, model: Any) -> None:
        decoder, head = parts_of(model)
        self._words, self._angles = words(decoder.embed_tokens), plain(decoder.rotary_emb)
        self._layers = [Layer(layer, number) for number, layer in enumerate(decoder.layers)]
        self._norm, self._head = Norm(decoder.norm), product_of(head)

    def __call__(self, token: Int[torch.Tensor, "L"], past: KVState) -> Float[torch.Tensor, "L V"]:  # noqa: F821
        """Logits of the token after these.

        Args:
            token: The last of each row.
            past: The tokens before; takes these in.
        """
        x = F.embedding(token, self._words)
        cos, sin = self._angles(x, past.place)
        half = sin.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)  # x₁ gets -x₂ sin, x₂ gets x₁ sin
        for layer in self._layers:
            x = layer(x, cos, sin, past)
        past.go_on()
        return self._head(self._norm(x))


class Layer:
    """One layer of such a model.

    Args:
        layer: As transformers made it.
        number: Of it.
    """

    def __init__(self, layer: Any, number: int) -> None:
        attention, mlp = made_of(made_of(layer, "layer").self_attn, "attention", {*OF_HEADS}), made_of(layer.mlp, "mlp")
        self.before, self.after = Norm(layer.input_layernorm), Norm(layer.post_attention_layernorm)
        self.qkv, self.out = product_of(*(getattr(attention, f"{x}_proj") for x in "qkv")), product_of(attention.o_proj)
        self.of_heads = [Norm(getattr(attention, x)) for x in OF_HEADS if hasattr(attention, x)]
        self.number, self.scale, self.d = number, attention.scaling, attention.head_dim
        self.groups = attention.k_proj.out_features // self.d
        self.gate_up, self.down, self.act = (
            product_of(mlp.gate_proj, mlp.up_proj),
            product_of(mlp.down_proj),
            plain(mlp.act_fn),
        )

    def __call__(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, past: KVState) -> torch.Tensor:
        """y (L, D) from x (L, D)."""
        h = x + self._attended(self.before(x), cos, sin, past)
        gate, up = self.gate_up(self.after(h)).chunk(2, -1)
        return h + self.down(self.act(gate) * up)

    def _attended(self, n: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, past: KVState) -> torch.Tensor:
        rows, d, shared = n.shape[0], self.d, self.groups
        heads, v = self.qkv(n).view(rows, -1, d).tensor_split([-shared], 1)
        if self.of_heads:
            parts = zip(heads.tensor_split([-shared], 1), self.of_heads, strict=True)
            heads = torch.cat([how(it) for it, how in parts], 1)
        heads = torch.addcmul(heads * cos, heads.roll(d // 2, -1), sin)
        q, k = heads.tensor_split([-shared], 1)
        asked = q.reshape(rows, shared, -1, d)  # heads that share keys stand where tokens do
        seen = past.seen(self.number, asked, k.unsqueeze(2), v.unsqueeze(2), self.scale)
        return self.out(seen.reshape(rows, -1))
