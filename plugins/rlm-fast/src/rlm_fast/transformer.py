"""Activation memory of a transformer of the Llama family (RMSNorm, rotary attention, gated MLP), byte by byte.

Bytes that autograd saves per token and layer. D is the hidden size; q and v are widths of queries and of keys, values;
I is that of the MLP, T the sequence length. w is the bytes per weight, b those per number in a matrix product.

================================================  ====================================================================
both norms: their input in float32                8 D; while they are trained also what they scale, 2 w D;
                                                  norms of queries and keys: the same on q + v
inputs of the projections                         2 b D; where autocast casts them each has its own: 5 b D
queries, keys, values, attention output           4 b q, because a padding mask repeats keys and values for every head
the padding mask                                  b T
gate, its SiLU, up, their product                 4 b I
adapters of rank r: their middle, inputs if cast  7 p r, p bytes per number inside an adapter; b q; p I instead of b I
reciprocal roots, sums of exponentials            4 per norm and head
================================================  ====================================================================

A fused MLP (`fused_mlp.py`) saves gate and up only.

With gradient checkpointing a layer saves its input, w D; in the backward pass one layer at a time needs all of the
above, after the logits are freed. The tests compare this with the tensors that autograd saves for Llama, Qwen2 and
Qwen3, to the byte. A mixture of experts saves more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlm_fast import chunk_sizes
from rlm_fast.load import Load
from rlm_fast.prefix_tree import attention_runs

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

HEAD_TOKENS, HEAD_VOCABULARY = 4096, 32768
"""Tile of tokens and vocabulary in which TRL computes log-probs (`trl.kernels.chunked_logprob`)."""
TILES = 8
"""Tiles in float32 that its backward pass needs without Triton; with Triton one, in the dtype of products."""


@dataclass(frozen=True)
class Transformer:
    """Sizes of a model that memory depends on: widths, and bytes per weight and per number of an adapter."""

    layers: int
    hidden: int
    heads: int
    queries: int
    values: int
    mlp: int
    vocab_size: int
    rank: int
    weight: int
    adapter: int
    has_head_norms: bool

    @classmethod
    def of_model(cls, model: torch.nn.Module, config: PretrainedConfig, rank: int) -> Transformer:
        """Return the sizes of a model.

        Args:
            model: With its adapters; may be on the meta device.
            config: Its config.
            rank: Rank of the adapters; 0: all weights are trained.
        """
        text: Any = config.get_text_config()
        heads = text.num_attention_heads
        width = getattr(text, "head_dim", None) or text.hidden_size // heads
        names = dict(model.named_parameters())
        weight = next(p.element_size() for p in names.values() if p.dim() == 2)
        return cls(
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            heads=heads,
            queries=heads * width,
            values=(getattr(text, "num_key_value_heads", None) or heads) * width,
            mlp=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            vocab_size=text.vocab_size,
            rank=rank,
            weight=weight,
            adapter=next((p.element_size() for name, p in names.items() if "lora_" in name), weight),
            has_head_norms=any("q_norm" in name for name in names),
        )

    def saved(self, width: int, half: bool) -> int:
        """Return the saved bytes per token and layer, by the table above.

        Args:
            width: Sequence length, padding included.
            half: Autocast computes products in two bytes.
        """
        trained = self.rank == 0
        product = 2 if half else self.weight
        inside = product if trained or half else self.adapter
        cast = {self.weight, self.adapter} != {inside}
        norms = (4 + self.weight * trained) * 2 * self.hidden + 8
        if self.has_head_norms:
            heads = self.heads * (self.queries + self.values) // self.queries
            norms += (4 + product * trained) * (self.queries + self.values) + 4 * heads
        inputs = inside * (5 * self.hidden + (0 if trained else self.queries)) if cast else 2 * product * self.hidden
        attention = product * (4 * self.queries + width) + 4 * self.heads
        return norms + inputs + attention + (3 * product + inside) * self.mlp + 7 * inside * self.rank

    def saved_packed(self, load: Load) -> int:
        """Return the saved bytes per layer of a packed micro-batch with `load.packed_prompts` prompts.

        In addition to the table, each attention call of completions copies the keys and values of its prompt. A CPU
        does not repeat them for every head. Attention outputs are concatenated.
        """
        product, heads = 2 if load.half else self.weight, self.queries if load.triton else self.values
        copied = load.packed_prompts * sum(load.prompt_len + tokens for tokens in _attention_calls(load))
        inside = product if self.rank == 0 or load.half else self.adapter
        joined = load.tokens if self.rank and {self.weight, self.adapter} != {inside} else 0  # only the cast is saved
        keys = 2 * heads * (load.tokens + copied) - 2 * self.queries * load.tokens
        return load.tokens * self.saved(0, load.half) + product * (keys + self.queries * (load.tokens - joined))

    def masks(self, load: Load) -> int:
        """Return the bytes of the attention masks of completions, shared by all layers: additive and boolean."""
        product = 2 if load.half else self.weight
        cells = sum(tokens * (load.prompt_len + tokens) for tokens in _attention_calls(load))
        return load.packed_prompts * cells * (product + 1)

    def activations(self, load: Load) -> int:
        """Return the bytes saved between the forward and the backward pass of a micro-batch."""
        layer = self._saved_by_layer(load)
        if load.checkpointing:
            layer = load.tokens * self.weight * self.hidden
        return self.layers * layer + self.masks(load)

    def layer(self, load: Load) -> int:
        """Return the bytes of one layer that checkpointing recomputes for its backward pass, and of its gradient."""
        return self._saved_by_layer(load) + self.hidden_states(load.tokens, load.half)

    def _saved_by_layer(self, load: Load) -> int:
        recomputed = 2 * self.weight * self.mlp * load.tokens if load.fused_mlp else 0
        if load.packed_prompts:
            return self.saved_packed(load) - recomputed
        return load.tokens * self.saved(load.prompt_len + load.completion_len, load.half) - recomputed

    def head(self, load: Load) -> int:
        """Return the bytes of the language head: tiles of logits, and hidden states with their float32 gradient.

        Without Triton TRL computes logits of every token, prompt and padding included. A packed pass computes those of
        completions only, in small chunks, with their float32 gradient (`fused_logprob_head.py`). Autocast adds
        a copy of the weight.
        """
        product = 2 if load.half else self.weight
        if load.packed_prompts:
            scored = load.micro_batch_size * load.completion_len
            tile = chunk_sizes.chunk_tokens(scored, self.vocab_size, gpu=load.triton) * self.vocab_size
            states = self.hidden_states(load.tokens, load.half) + self.hidden_states(scored, load.half)
            cast = 2 * self.vocab_size * self.hidden if load.half and self.weight > 2 else 0
            return states + tile * (4 + 4 + 4) + cast
        if load.triton:
            tokens = load.micro_batch_size * load.completion_len
            tile = min(tokens, HEAD_TOKENS) * HEAD_VOCABULARY * product
        else:
            tokens = load.micro_batch_size * (load.prompt_len + load.completion_len)
            tile = min(tokens, HEAD_TOKENS) * min(self.vocab_size, HEAD_VOCABULARY) * 4 * TILES
        return tile + self.hidden_states(tokens, load.half)

    def hidden_states(self, tokens: int, half: bool) -> int:
        """Return the bytes of the last hidden states of `tokens` tokens and their gradient in float32."""
        return tokens * self.hidden * ((2 if half else self.weight) + 4)

    def kv_cache(self, tokens: int) -> int:
        """Return the bytes of the KV cache of `tokens` tokens: 2 v w per token and layer."""
        return tokens * self.layers * 2 * self.values * self.weight

    def prefill(self, tokens: int) -> int:
        """Return the bytes of one layer during the prefill of `tokens` tokens: three times D and four times I."""
        return tokens * self.weight * (3 * self.hidden + 4 * self.mlp)

    def sampling(self, load: Load) -> int:
        """Return the bytes of sampling one token per sequence: logits, scaled logits, probabilities and noise.

        On a CPU the noise comes from float64 numbers, for all sequences and for the active ones
        (`sampling.py`).
        """
        noise = 4 if load.triton else 4 + 2 * 8
        return load.generated * self.vocab_size * (self.weight + 4 + 4 + noise)


def _attention_calls(load: Load) -> list[int]:
    """Return the tokens of each attention call of a prompt that attends to an earlier one; empty if padded."""
    if not load.packed_prompts:
        return []
    completions = math.ceil(load.micro_batch_size / load.packed_prompts)
    pairs = chunk_sizes.PAIRS_GPU if load.triton else chunk_sizes.PAIRS
    sizes = [load.prompt_len, *[load.completion_len - 1] * completions]
    runs = attention_runs(sizes, [-1, *[0] * completions], pairs)
    return [sum(sizes[index] for index in run.segments) for run in runs[1:]]
