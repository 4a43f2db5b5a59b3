"""What a transformer of the Llama family (RMSNorm, rotary attention, gated MLP) keeps in memory, byte by byte.

Per token and layer autograd keeps, with D hidden units, q and v units of queries and of keys or values, I units of the
MLP, w bytes per weight, b bytes per number in a matrix product, r the rank of an adapter:

==========================================  ==========================================================================
both norms: their input in float32          8 D (trained: and what they scale, 2 w D); norms of q, k: the same on q + v
inputs of the projections                   2 b D, shared; where autocast casts them, one each: 5 b D (adapters: + b q)
queries, keys, values, attention's answer   2 b (q + v), and 4 bytes per head
gate, its SiLU, up, their product           4 b I
the middle of seven adapters                7 b r
the reciprocal root of both norms           8
==========================================  ==========================================================================

With gradient checkpointing a layer keeps its input, w D, and one layer at a time all of the above. Tests compare this
with the tensors autograd saves for Llama, Qwen2 and Qwen3, to the byte. A mixture of experts keeps more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

    from rlm_plugins.estimate import Load

HEAD_TOKENS, HEAD_VOCABULARY = 4096, 32768
"""TRL scores tokens against the vocabulary in tiles of this size (`trl.kernels.chunked_logprob`)."""
TILES = 8
"""Copies of such a tile, in float32, that its backward pass holds at once without Triton; with it none."""


@dataclass(frozen=True)
class Block:
    """The sizes of a model that memory depends on."""

    layers: int
    hidden: int
    heads: int
    queries: int
    values: int
    mlp: int
    vocabulary: int
    weight: int
    rank: int
    adapter: int
    normed_queries: bool

    @classmethod
    def of(cls, model: torch.nn.Module, config: PretrainedConfig, rank: int) -> Block:
        """Reads the sizes.

        Args:
            model: With its adapters; may be on the meta device.
            config: Its config.
            rank: Rank of the adapters; 0: all weights are trained.
        """
        text: Any = config.get_text_config()
        heads = text.num_attention_heads
        width = getattr(text, "head_dim", None) or text.hidden_size // heads
        names = dict(model.named_parameters())
        return cls(
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            heads=heads,
            queries=heads * width,
            values=(getattr(text, "num_key_value_heads", None) or heads) * width,
            mlp=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            vocabulary=text.vocab_size,
            weight=next(p.element_size() for p in names.values() if p.dim() == 2),
            rank=rank,
            adapter=next((p.element_size() for name, p in names.items() if "lora_" in name), 0),
            normed_queries=any("q_norm" in name for name in names),
        )

    def cache(self, tokens: int) -> int:
        """Keys and values of `tokens` tokens: 2 v w per token and layer."""
        return tokens * self.layers * 2 * self.values * self.weight

    def kept(self, half: bool) -> int:
        """Bytes per token and layer, by the table above; `half`: autocast computes products in two bytes."""
        trained = self.rank == 0
        product = 2 if half else self.weight
        own = product if trained or half else self.adapter
        casts = any(size != own for size in (self.weight, self.weight if trained else self.adapter))
        attended = self.queries + self.values
        norms = (4 + self.weight * trained) * 2 * self.hidden + 8
        if self.normed_queries:
            norms += (4 + product * trained) * attended + 4 * attended * self.heads // self.queries
        inputs = own * (5 * self.hidden + (not trained) * self.queries) if casts else 2 * product * self.hidden
        attention = 2 * product * attended + 4 * self.heads
        return norms + inputs + attention + (3 * product + own) * self.mlp + 7 * own * self.rank

    def activations(self, load: Load) -> int:
        """What one micro-batch keeps between its forward and its backward pass."""
        tokens = load.micro_rows * (load.prompt + load.completion)
        whole = tokens * self.kept(load.half)
        return tokens * self.layers * self.weight * self.hidden + whole if load.checkpointing else self.layers * whole

    def head(self, load: Load) -> int:
        """Log-probabilities of the completions: one tile of logits at a time, and the gradient of the hidden states.

        Without Triton TRL scores every token (prompt and padding too) and holds copies of the tile.
        """
        product = 2 if load.half else self.weight
        tokens = load.micro_rows * (load.completion if load.fused else load.prompt + load.completion)
        tile = min(tokens, HEAD_TOKENS) * min(self.vocabulary, HEAD_VOCABULARY)
        copies = product if load.fused else product + 4 * (TILES - 1)
        return tile * copies + tokens * self.hidden * (product + 4)
