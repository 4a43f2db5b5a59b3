"""Memory of a stage, estimated before any weight is loaded.

    peak = always + max(generation, update, critic update)

Weights, adapters, gradients and optimizer states are counted (:mod:`rlm_fast.weight_bytes`). On a CPU the process
itself is included: Python and libraries hold more than a small model. Not included: CUDA's context (about 1 GiB),
fragmentation, images. Add about 10 % for these. A critic is updated after the policy, so their activations are never in
memory together.

Activation memory of a transformer of the Llama family (RMSNorm, rotary attention, gated MLP), byte by byte.

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

A fused MLP (`fused_layers.py`) saves gate and up only, and one input. Fused layers cast inputs of float32 models only.

With gradient checkpointing a layer saves its input, w D; in the backward pass one layer at a time needs all of the
above, after the logits are freed. The tests compare this with the tensors that autograd saves for Llama, Qwen2 and
Qwen3, to the byte. A mixture of experts saves more.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlm_fast import linear_layers
from rlm_fast.packed_attention import attention_runs
from rlm_fast.weight_bytes import frozen_bytes, gathered_bytes, half_precision_copies, sharded_bytes, skeleton
from rlm_plugins.models import scratch
from rlm_plugins.registry.setting import PolicyBytes
from rlm_plugins.stage import Critic

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Load:
    """Sizes of the batches of a stage, per process.

    Args:
        generated: Completions decoded at once; 0: none in this process.
        prompt_len: Longest prompt, in tokens.
        completion_len: Longest completion or demonstration, in tokens.
        micro_batch_size: Sequences of one backward pass.
        checkpointing: Gradient checkpointing is on.
        half: Autocast computes products in two bytes.
        optimizer_state: Bytes of optimizer state per byte of trained weights: AdamW keeps two moments.
        reference: A second, frozen copy of the weights is in memory.
        triton: TRL's Triton kernel computes log-probs (a GPU).
        copied_weights: Bytes of merged and packed weights during decoding.
        part_models: Bytes of the models that parts keep besides the policy.
        packed_prompts: Prompts of a packed micro-batch, each once for its completions; 0: micro-batches are padded.
        decoded_prompts: Prompts decoded at once, whose KV cache their completions share; 0: each has its own.
        common_len: Tokens that all prompts start with, computed once where prompts are shared.
        process: Resident bytes of the process without models.
        fused_mlp: Gated MLPs keep two of four wide tensors for the backward pass (`fused_layers.py`).
        sharding: What a planned launch shards over its `processes`: `none`, `fsdp2`, `zero2`, `zero3`.
    """

    generated: int
    prompt_len: int
    completion_len: int
    micro_batch_size: int
    checkpointing: bool = False
    half: bool = False
    optimizer_state: float = 2.0
    reference: bool = False
    triton: bool = False
    copied_weights: int = 0
    part_models: int = 0
    packed_prompts: int = 0
    decoded_prompts: int = 0
    common_len: int = 0
    process: int = 0
    fused_mlp: bool = False
    sharding: str = "none"
    processes: int = 1

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch at full length; packed, the last token of a completion is left out."""
        if self.packed_prompts:
            return self._distinct_tokens(self.packed_prompts) + self.micro_batch_size * (self.completion_len - 1)
        return self.micro_batch_size * (self.prompt_len + self.completion_len)

    @property
    def prefilled_tokens(self) -> int:
        if self.decoded_prompts:
            return self._distinct_tokens(self.decoded_prompts)
        return self.generated * self.prompt_len

    @property
    def cached_tokens(self) -> int:
        return self.prefilled_tokens + self.generated * self.completion_len

    def _distinct_tokens(self, prompts: int) -> int:
        """Return the tokens of distinct prompts, those that all start with once."""
        return prompts * (self.prompt_len - self.common_len) + self.common_len


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

    def saved(self, width: int, half: bool, fused: bool = False) -> int:
        """Return the saved bytes per token and layer, by the table above; `width` is that of a padded sequence."""
        trained = self.rank == 0
        product = 2 if half else self.weight
        inside = product if trained or half else self.adapter
        norms = (4 + self.weight * trained) * 2 * self.hidden + 8
        if self.has_head_norms:
            heads = self.heads * (self.queries + self.values) // self.queries
            norms += (4 + product * trained) * (self.queries + self.values) + 4 * heads
        inputs = 2 * product * self.hidden
        if self._casts(inside, self.weight, fused):
            inputs = inside * (4 if fused else 5) * self.hidden
        if not trained and self._casts(inside, product, fused):
            inputs += inside * self.queries
        wide = 2 * product if fused else 3 * product + inside
        attention = product * (4 * self.queries + width) + 4 * self.heads
        return norms + inputs + attention + wide * self.mlp + 7 * inside * self.rank

    def _casts(self, inside: int, given: int, fused: bool) -> bool:
        """Return True if adapters keep inputs of their own, cast from `given` to `inside` bytes per number."""
        return given != inside or (not fused and {self.weight, self.adapter} != {inside})

    def saved_packed(self, load: Load) -> int:
        """Return the saved bytes per layer of a packed micro-batch with `load.packed_prompts` prompts.

        In addition to the table, each attention call of completions copies the keys and values of its prompt. A CPU
        does not repeat them for every head. Attention outputs are concatenated.
        """
        product, heads = 2 if load.half else self.weight, self.queries if load.triton else self.values
        copied = load.packed_prompts * sum(load.prompt_len + tokens for tokens in _attention_calls(load))
        inside = product if self.rank == 0 or load.half else self.adapter
        joined = (
            load.tokens if self.rank and self._casts(inside, product, load.fused_mlp) else 0
        )  # only the cast is saved
        keys = 2 * heads * (load.tokens + copied) - 2 * self.queries * load.tokens
        saved = self.saved(0, load.half, load.fused_mlp)
        return load.tokens * saved + product * (keys + self.queries * (load.tokens - joined))

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
        if load.packed_prompts:
            return self.saved_packed(load)
        return load.tokens * self.saved(load.prompt_len + load.completion_len, load.half, load.fused_mlp)

    def head(self, load: Load) -> int:
        """Return the bytes of the language head: tiles of logits, and hidden states with their float32 gradient.

        Without Triton TRL computes logits of every token, prompt and padding included. A packed pass computes those of
        completions only, in small chunks, with their float32 gradient (`fused_layers.py`). Autocast adds
        a copy of the weight.
        """
        product = 2 if load.half else self.weight
        if load.packed_prompts:
            scored = load.micro_batch_size * load.completion_len
            tile = linear_layers.chunk_tokens(scored, self.vocab_size, gpu=load.triton) * self.vocab_size
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
    pairs = linear_layers.PAIRS_GPU if load.triton else linear_layers.PAIRS
    sizes = [load.prompt_len, *[load.completion_len - 1] * completions]
    runs = attention_runs(sizes, [-1, *[0] * completions], pairs)
    return [sum(sizes[index] for index in run.segments) for run in runs[1:]]


FLOAT = 4
MOMENTS = 2
"""Bytes of a float32, and moments of AdamW in the type of the weights."""


def critic_memory(config: PretrainedConfig, critic: Critic | None, load: Load) -> tuple[dict[str, int], dict[str, int]]:
    """Return the bytes a critic holds during the whole run and during its update, by purpose.

    A value head on the policy's own passes needs nothing of its own during the update.
    """
    if critic is None:
        return {}, {}
    model: Any = None
    rank = 0
    if critic.kind == "shared":
        model, rank = scratch.skeleton(config, critic.lora or {}, "critic.lora"), (critic.lora or {}).get("r", 8)
    elif critic.kind == "separate":
        config = _in_float32(config)
        model = skeleton(config, None).base_model
    weights = FLOAT * (int(config.get_text_config().hidden_size) + 1)
    if model is not None:
        weights += scratch.trained_bytes(model)
    during_run = {
        "critic weights": weights,
        "critic gradients": weights,
        "critic optimizer state": MOMENTS * weights,
    }
    return during_run, {} if model is None else _update(model, Transformer.of_model(model, config, rank), load)


def _update(model: Any, transformer: Transformer, load: Load) -> dict[str, int]:
    if load.checkpointing:
        last = {"recomputed layer": transformer.layer(load)}
    else:
        last = {"hidden states": transformer.hidden_states(load.tokens, load.half)}
    copies = half_precision_copies(model) if load.half else 0
    return {"critic activations": transformer.activations(load), **last, "half-precision weights": copies}


def _in_float32(config: PretrainedConfig) -> PretrainedConfig:
    """Return a copy of a config in float32, the type of a trained copy of any model."""
    config = copy.deepcopy(config)
    config.dtype = "float32"
    return config


@dataclass(frozen=True)
class Estimate:
    """Bytes of a stage, by purpose.

    Args:
        parameters: Number of parameters, adapters included.
        trained: Number of trained parameters.
        always: In memory during the whole run.
        generation: In memory while completions are decoded.
        update: In memory during the update on a micro-batch.
        critic_update: In memory while a critic with a trunk of its own is updated, after the policy.
    """

    parameters: int
    trained: int
    always: Mapping[str, int]
    generation: Mapping[str, int]
    update: Mapping[str, int]
    critic_update: Mapping[str, int]

    @property
    def peak(self) -> int:
        """Bytes of the whole run plus the largest of the phases, which never overlap."""
        phases = (self.generation, self.update, self.critic_update)
        return sum(self.always.values()) + max(sum(terms.values()) for terms in phases)


def estimate(
    config: PretrainedConfig,
    lora: Mapping[str, Any] | None,
    load: Load,
    critic: Critic | None = None,
    of_settings: Callable[[PolicyBytes], Mapping[str, int]] = lambda policy: {},
) -> Estimate:
    """Estimate the memory of a stage.

    Args:
        config: Config of the model. Weights are in its `dtype`, or in four bits by its `quantization_config`.
        lora: Fields of ``peft.LoraConfig``, or None to train all weights.
        load: Sizes of the batches.
        critic: `critic:` of the stage.
        of_settings: Bytes of the policy → bytes that settings of packages keep in memory, by name.
    """
    model = skeleton(config, lora)
    transformer = Transformer.of_model(model, config, rank=lora.get("r", 8) if lora is not None else 0)
    trained = scratch.trained_bytes(model)
    critic_always, critic_update = critic_memory(config, critic, load)
    generation = {
        "KV cache": transformer.kv_cache(load.cached_tokens),
        "prefill activations": transformer.prefill(load.prefilled_tokens),
        "sampling": transformer.sampling(load),
        "merged and packed weights": load.copied_weights if load.generated else 0,
    }
    copy = frozen_bytes(model, config) + trained + load.process + sum(generation.values())
    return Estimate(
        parameters=sum(p.numel() for p in model.parameters()),
        trained=sum(p.numel() for p in model.parameters() if p.requires_grad),
        always={
            **sharded_bytes(frozen_bytes(model, config), trained, load),
            "reference weights": trained if load.reference else 0,
            "models of parts": load.part_models,
            "process": load.process,
            **of_settings(PolicyBytes(trained, copy)),
            **critic_always,
        },
        generation=generation | gathered_bytes(model, load, during_update=False),
        update={
            **gathered_bytes(model, load, during_update=True),
            "activations": transformer.activations(load),
            **_backward(transformer, load),
            "half-precision weights": half_precision_copies(model) if load.half else 0,
        },
        critic_update=critic_update,
    )


def _backward(transformer: Transformer, load: Load) -> dict[str, int]:
    """Return the bytes that the backward pass adds: the logits, or a recomputed layer if larger; never both."""
    head, layer = transformer.head(load), transformer.layer(load) if load.checkpointing else 0
    return {"log-probs": head} if head >= layer else {"recomputed layer": layer}
