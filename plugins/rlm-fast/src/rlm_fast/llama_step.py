"""One-token forward of Llama-type decoders, with a third of the kernel calls of the modules.

    h = x + O · attention(RoPE(Q n), RoPE(K n), V n),    n = norm(x)
    y = h + D · (act(G m) ⊙ U m),                        m = norm(h)

Models of another type (`llama_modules.py`), or with other logits than this step (`llama_step_check.py`), are called
module by module.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, Int

from rlm_fast.llama_modules import (
    HEAD_NORMS,
    Norm,
    check_forward,
    check_submodules,
    decoder_and_head,
    embedding_weight,
    fused_linear,
)


class State(Protocol):
    """Keys and values of earlier tokens: `KVState` in decoding, `TreeState` in the prefill."""

    position: torch.Tensor

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Add the keys and values of the tokens to a layer and return the attention output."""

    def advance(self) -> None:
        """Move on by one token, after all layers."""


class LlamaStep:
    """Forward pass of one token per sequence, with a snapshot of the weights.

    Args:
        model: With or without adapters.
        merge: Copy weights, with adapters merged; False: use them in place.

    Raises:
        UnsupportedModel: The model is no plain Llama-type decoder.
    """

    def __init__(self, model: Any, merge: bool = True) -> None:
        decoder, head = decoder_and_head(model)
        self._embedding, self._rotary = embedding_weight(decoder.embed_tokens), check_forward(decoder.rotary_emb)
        self._layers = [StepLayer(layer, index, merge) for index, layer in enumerate(decoder.layers)]
        self._norm, self._head = Norm(decoder.norm), fused_linear(head, merge=merge)

    def __call__(
        self,
        token: Int[torch.Tensor, "L"],  # noqa: F821
        state: State,
        predicting: Int[torch.Tensor, "N"] | None = None,  # noqa: F821
    ) -> Float[torch.Tensor, "N V"]:
        """Return logits of the token after these.

        Args:
            token: Last token of each sequence, or all tokens of a prompt tree.
            state: State of the tokens before; updated in place.
            predicting: Indices of the tokens whose logits are needed; None: all.
        """
        x = F.embedding(token, self._embedding)
        cos, sin = self._rotary(x, state.position)
        half = sin.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)  # x₁ gets -x₂ sin, x₂ gets x₁ sin
        for layer in self._layers:
            x = layer(x, cos, sin, state)
        state.advance()
        return self._head(self._norm(x if predicting is None else x[predicting]))


class StepLayer:
    """One decoder layer of `LlamaStep`.

    Args:
        layer: The transformers module.
        index: Index of the layer.
        merge: Copy weights, as in `LlamaStep`.
    """

    def __init__(self, layer: Any, index: int, merge: bool) -> None:
        attention = check_submodules(check_submodules(layer, "layer").self_attn, "attention", {*HEAD_NORMS})
        mlp = check_submodules(layer.mlp, "mlp")
        linear = partial(fused_linear, merge=merge)
        self.input_norm, self.mlp_norm = Norm(layer.input_layernorm), Norm(layer.post_attention_layernorm)
        self.qkv = linear(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = linear(attention.o_proj)
        self.head_norms = [Norm(getattr(attention, name)) for name in HEAD_NORMS if hasattr(attention, name)]
        self.index, self.scale, self.head_dim = index, attention.scaling, attention.head_dim
        self.key_heads = attention.k_proj.out_features // self.head_dim
        self.gate_up, self.down = linear(mlp.gate_proj, mlp.up_proj), linear(mlp.down_proj)
        self.act = check_forward(mlp.act_fn)

    def __call__(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, state: State) -> torch.Tensor:
        """Return y (L, D) from x (L, D)."""
        h = x + self._attention(self.input_norm(x), cos, sin, state)
        gate, up = self.gate_up(self.mlp_norm(h)).chunk(2, -1)
        return h + self.down(self.act(gate) * up)

    def _attention(self, n: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, state: State) -> torch.Tensor:
        batch_size, d, key_heads = n.shape[0], self.head_dim, self.key_heads
        heads, v = self.qkv(n).view(batch_size, -1, d).tensor_split([-key_heads], 1)
        if self.head_norms:
            pieces = zip(heads.tensor_split([-key_heads], 1), self.head_norms, strict=True)
            heads = torch.cat([norm(x) for x, norm in pieces], 1)
        heads = torch.addcmul(heads * cos, heads.roll(d // 2, -1), sin)
        q, k = heads.tensor_split([-key_heads], 1)
        # Query heads with the same key head take the token dimension, so keys need not be repeated.
        query = q.reshape(batch_size, key_heads, -1, d)
        output = state.attend(self.index, query, k.unsqueeze(2), v.unsqueeze(2), self.scale)
        return self.out(output.reshape(batch_size, -1))
