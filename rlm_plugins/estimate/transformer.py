"""What a transformer of the Llama family (RMSNorm, rotary attention, gated MLP) keeps in memory, byte by byte.

Per token and layer autograd keeps what its backward pass will read. With D hidden units, q and v units of queries and
of keys or values, I units of the MLP, T tokens in a row, w bytes per weight, b per number in a matrix product:

================================================  ====================================================================
both norms: their input in float32                8 D; while they are trained also what they scale, 2 w D;
                                                  norms of queries and keys: the same on q + v
inputs of the projections                         2 b D; where autocast casts them each has its own: 5 b D
queries, keys, values, attention's answer         4 b q, because a padding mask repeats keys and values for every head
the padding mask                                  b T
gate, its SiLU, up, their product                 4 b I
adapters of rank r: their middle, inputs if cast  7 p r, p bytes per number inside an adapter; b q; p I instead of b I
reciprocal roots, sums of exponentials            4 per norm and head
================================================  ====================================================================

With gradient checkpointing a layer keeps its input, w D, and one layer at a time all of the above, when the logits are
gone. The tests compare this with the tensors autograd saves for Llama, Qwen2 and Qwen3, to the byte. A mixture of
experts keeps more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlm_plugins.kernels.chunk_sizes import PAIRS, PAIRS_GPU, logits, runs

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

    from rlm_plugins.estimate.memory import Load

HEAD_TOKENS, HEAD_VOCABULARY = 4096, 32768
"""TRL scores tokens against the vocabulary in tiles of this size (`trl.kernels.chunked_logprob`)."""
TILES = 8
"""Tiles of float32 that its backward pass holds at once without Triton; with it one, in the product's type."""


@dataclass(frozen=True)
class Block:
    """The sizes of a model that memory depends on: units, and bytes per weight and per number of an adapter."""

    layers: int
    hidden: int
    heads: int
    queries: int
    values: int
    mlp: int
    vocabulary: int
    rank: int
    weight: int
    adapter: int
    norms_queries: bool

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
        weight = next(p.element_size() for p in names.values() if p.dim() == 2)
        return cls(
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            heads=heads,
            queries=heads * width,
            values=(getattr(text, "num_key_value_heads", None) or heads) * width,
            mlp=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            vocabulary=text.vocab_size,
            rank=rank,
            weight=weight,
            adapter=next((p.element_size() for name, p in names.items() if "lora_" in name), weight),
            norms_queries=any("q_norm" in name for name in names),
        )

    def kept(self, width: int, half: bool) -> int:
        """Bytes per token and layer, by the table above.

        Args:
            width: Tokens of a row, padding included.
            half: Whether autocast computes products in two bytes.
        """
        trained = self.rank == 0
        product = 2 if half else self.weight
        inside = product if trained or half else self.adapter
        cast = {self.weight, self.adapter} != {inside}
        norms = (4 + self.weight * trained) * 2 * self.hidden + 8
        if self.norms_queries:
            heads = self.heads * (self.queries + self.values) // self.queries
            norms += (4 + product * trained) * (self.queries + self.values) + 4 * heads
        inputs = inside * (5 * self.hidden + (0 if trained else self.queries)) if cast else 2 * product * self.hidden
        attention = product * (4 * self.queries + width) + 4 * self.heads
        return norms + inputs + attention + (3 * product + inside) * self.mlp + 7 * inside * self.rank

    def kept_packed(self, load: Load) -> int:
        """Bytes per layer of a micro-batch that is read packed, `load.trees` prompts before its completions.

        Beside the table: each run of completions has a copy of its prompt's keys and values before its own, which a CPU
        does not repeat for every head; and the answers are joined again.
        """
        product, heads = 2 if load.half else self.weight, self.queries if load.fused else self.values
        copied = load.trees * sum(load.prompt + run for run in _runs(load))
        inside = product if self.rank == 0 or load.half else self.adapter
        joined = load.tokens if self.rank and {self.weight, self.adapter} != {inside} else 0  # only its cast is kept
        keys = 2 * heads * (load.tokens + copied) - 2 * self.queries * load.tokens
        return load.tokens * self.kept(0, load.half) + product * (keys + self.queries * (load.tokens - joined))

    def masks(self, load: Load) -> int:
        """Who sees whom among completions, once for all layers: as numbers and as booleans."""
        product = 2 if load.half else self.weight
        return load.trees * sum(run * (load.prompt + run) for run in _runs(load)) * (product + 1)

    def activations(self, load: Load) -> int:
        """What one micro-batch keeps between its forward and its backward pass."""
        whole = self._layer_keeps(load)
        each = load.tokens * self.weight * self.hidden if load.checkpointing else whole
        return self.layers * each + self.masks(load)

    def layer(self, load: Load) -> int:
        """One layer at its backward pass, where checkpointing has it read again; and what flows back into it."""
        return self._layer_keeps(load) + self.hidden_states(load.tokens, load.half)

    def _layer_keeps(self, load: Load) -> int:
        width = load.prompt + load.completion
        return self.kept_packed(load) if load.trees else load.tokens * self.kept(width, load.half)

    def head(self, load: Load) -> int:
        """Log-probabilities of a micro-batch: tiles of logits, and hidden states with their gradient in float32.

        Without Triton every token is scored, prompt and padding too. Packed, only completions are, with their gradient
        at once in float32 and a few logits at a time (`kernels/fused_logprob_head.py`), beside autocast's copy of the
        weight.
        """
        product = 2 if load.half else self.weight
        if load.trees:
            scored = load.micro_rows * load.completion
            tile = min(scored * self.vocabulary, logits(self.vocabulary, gpu=load.fused))
            states = self.hidden_states(load.tokens, load.half) + self.hidden_states(scored, load.half)
            cast = 2 * self.vocabulary * self.hidden if load.half and self.weight > 2 else 0
            return states + tile * (4 + 4 + 4) + cast
        tokens = load.micro_rows * (load.completion if load.fused else load.prompt + load.completion)
        tile = min(tokens, HEAD_TOKENS) * (HEAD_VOCABULARY if load.fused else min(self.vocabulary, HEAD_VOCABULARY))
        return tile * (product if load.fused else 4 * TILES) + self.hidden_states(tokens, load.half)

    def hidden_states(self, tokens: int, half: bool) -> int:
        """The trunk's answer for `tokens` tokens, and its gradient in float32."""
        return tokens * self.hidden * ((2 if half else self.weight) + 4)

    def cache(self, tokens: int) -> int:
        """Keys and values of `tokens` tokens: 2 v w per token and layer."""
        return tokens * self.layers * 2 * self.values * self.weight

    def reading(self, tokens: int) -> int:
        """One layer at work on `tokens` tokens of prompts, without gradient: three times D and four times I."""
        return tokens * self.weight * (3 * self.hidden + 4 * self.mlp)

    def choosing(self, load: Load) -> int:
        """The next token of every row: logits, in float32 scaled, as probabilities, and the noise that chooses.
        A CPU draws that from numbers in float64, of all rows and then of those that are left
        (`generation/sampling.py`).
        """
        noise = 4 if load.fused else 4 + 2 * 8
        return load.rows * self.vocabulary * (self.weight + 4 + 4 + noise)


def _runs(load: Load) -> list[int]:
    """Tokens of each run of completions of a prompt, but the first; none where rows are read padded."""
    rows, pairs = math.ceil(load.micro_rows / max(1, load.trees)), PAIRS_GPU if load.fused else PAIRS
    return [sum(run) for run in runs([load.completion - 1] * rows, pairs)[1:]] if load.trees else []
