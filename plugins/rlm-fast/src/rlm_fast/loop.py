"""Decoding loop with shared prefill and early eviction of finished sequences; the samples are those of transformers.

`generate` of transformers prepares the call (config, logits processors, stopping criteria, cache) and passes it to
this loop (`custom_generate`). Sequences do not depend on each other, and random numbers are drawn for all of them,
evicted ones included. So the remaining sequences get the samples they would get in the full batch. With unknown
processors the call falls back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Int
from transformers.distributed.fsdp import is_fsdp_managed_module
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from rlm_fast.kv_cache import (
    KVState,
    PromptTree,
    common_tokens,
    distinct_prompts,
    evict,
    has_plain_layers,
    on_device,
    preallocate,
    surviving_indices,
    unpadded,
)
from rlm_fast.linear_layers import merged
from rlm_fast.llama_step import LlamaStep, verified_step
from rlm_fast.model_limits import IMAGES, config_has_dropout, has_vision, position_limit
from rlm_fast.sampling import MultinomialSampler, Sampler, generation_from_steps, greedy, token_statistics
from rlm_fast.tree_attention import MIN_SAVED
from rlm_plugins.models.adapters import causal_model
from rlm_plugins.rollout.generator_call import Generation, OnFinished

_PER_SEQUENCE = """
MinLengthLogitsProcessor MinNewTokensLengthLogitsProcessor TemperatureLogitsWarper
RepetitionPenaltyLogitsProcessor TopPLogitsWarper TopKLogitsWarper MinPLogitsWarper TypicalLogitsWarper
EpsilonLogitsWarper EtaLogitsWarper NoRepeatNGramLogitsProcessor SequenceBiasLogitsProcessor
NoBadWordsLogitsProcessor ForcedEOSTokenLogitsProcessor InfNanRemoveLogitsProcessor LogitNormalization
SuppressTokensLogitsProcessor SuppressTokensAtBeginLogitsProcessor MaxLengthCriteria EosTokenCriteria
StopStringCriteria
"""
PER_SEQUENCE = frozenset(_PER_SEQUENCE.split())
"""Logits processors and stopping criteria of transformers that treat each sequence independently of the batch."""
SEQUENCE_STATE = {"prompt_ignore_length"}
"""Attributes of these processors that hold one entry per sequence."""
MODEL_KWARGS = ("attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep")
"""Supported inputs of a model besides token ids."""


def why_unsupported_call(
    model: Any, processors: Any, criteria: Any, config: Any, model_kwargs: Mapping[str, Any]
) -> str | None:
    """Return why a prepared call of `generate` is unsupported, or None."""
    mode = config.get_generation_mode()
    if mode not in ("sample", "greedy_search"):
        return f"{mode.replace('_', ' ')} is unsupported"
    unknown = [type(x).__name__ for x in (*processors, *criteria) if not _is_per_sequence(x)]
    if unknown:
        return f"{unknown[0]} is unsupported"
    if config.return_dict_in_generate or config.prefill_chunk_size is not None:
        return "`return_dict_in_generate` and `prefill_chunk_size` are unsupported"
    inputs = [name for name, x in model_kwargs.items() if name not in MODEL_KWARGS and x is not None]
    if inputs:
        return IMAGES if has_vision(model) else f"the model input `{inputs[0]}` is unsupported"
    if not model_kwargs.get("use_cache") or not has_plain_layers(model_kwargs.get("past_key_values")):
        return "not every layer caches keys and values of all tokens"
    limit = position_limit(model.config.get_text_config())
    if limit is not None and config.max_length > limit:
        return f"sequences may exceed {limit} tokens, beyond which positions are encoded differently"
    return None


def _is_per_sequence(x: Any) -> bool:
    """Return True if a processor or criterion treats each sequence independently."""
    return type(x).__module__.startswith("transformers.generation.") and type(x).__name__ in PER_SEQUENCE


def why_unsupported_model(model: Any) -> str | None:
    """Return why a model is unsupported, or None."""
    base = causal_model(model)
    dropout = [module for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    is_on = any(x.p > 0 and x.training for x in dropout)
    if is_on or (base.training and config_has_dropout(base.config.get_text_config())):
        return "dropout is on, and its masks depend on the batch"
    if is_deepspeed_zero3_enabled() or is_fsdp_managed_module(base):
        return "the model is sharded, and all processes must run each forward pass together"
    adapters = getattr(model, "peft_config", None) or {}
    if any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values()):
        return "the adapter adds virtual tokens to each prompt"
    return None


class ActiveSequences:
    """Prefills each distinct prompt once, then decodes token by token; finished sequences are evicted.

    Args:
        model: The transformers model.
        input_ids: (B, P), padded on the left.
        config: Prepared `GenerationConfig` of transformers.
        model_kwargs: Inputs of the model besides token ids.
        processors: Logits processors.
        step: Replaces the model's one-token forward if position ids are two-dimensional.
        share: True to prefill common prefixes of prompts only once.

    Attributes:
        total: Number of all sequences, B.
        indices: (L,) indices of the active sequences.
        ids: (L, P + t) token ids of the active sequences.
    """

    def __init__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        config: Any,
        model_kwargs: dict[str, Any],
        processors: Any,
        step: LlamaStep | None = None,
        *,
        share: bool = True,
    ) -> None:
        self._model, self._config, self._model_kwargs, self._processors = model, config, model_kwargs, processors
        self.pad = 0 if config._pad_token_tensor is None else int(config._pad_token_tensor)
        self.ids, self.total = input_ids, len(input_ids)
        self.indices = torch.arange(self.total, device=input_ids.device)
        self._columns: list[torch.Tensor] = [input_ids]
        self._step, self._share = step, share
        self._state: KVState | None = None
        self._cache = model_kwargs["past_key_values"]
        preallocate(self._cache, config.max_length - input_ids.shape[1])

    def prefill(self) -> torch.Tensor:
        """Return logits of the first completion token (B, V), in float32."""
        first, prompt_of = distinct_prompts(self.ids, self._model_kwargs.get("attention_mask"))
        inputs = _select(self._model_kwargs, first, self.total)
        prompts = unpadded(self.ids[first], inputs.get("attention_mask"), inputs.get("position_ids"))
        if prompts is not None and self._share:
            if self._step is not None:
                tree = PromptTree(prompts, self.ids.device, MIN_SAVED)
                logits, self._state = tree.prefill(self._step, self._cache, prompt_of)
                return logits[prompt_of]
            common = common_tokens(prompts)
            if common * (len(prompts) - 1) >= MIN_SAVED:
                return self._prefill_after(common, first, prompt_of, inputs)
        output = self._model._prefill(self.ids[first], self._config, inputs)
        self._model_kwargs = self._model._update_model_kwargs_for_generation(output, self._model_kwargs)
        position_ids = self._model_kwargs.get("position_ids")
        # the step computes rotary angles per sequence, which requires one position for each
        if self._step is not None and position_ids is not None and position_ids.dim() == 2:
            position = position_ids[:, -1:].expand(self.total, 1)
            self._state = KVState(self._cache, prompt_of, position, self._model_kwargs.get("attention_mask"))
        else:
            self._cache.batch_select_indices(prompt_of)
        return output.logits[:, -1].float()[prompt_of]

    def _prefill_after(
        self, common: int, first: torch.Tensor, prompt_of: torch.Tensor, inputs: dict[str, Any]
    ) -> torch.Tensor:
        """Prefill the first `common` tokens of all prompts once, then the rest of each prompt.

        In the KV cache and in the inputs of the model, padding is between these tokens and the rest of the prompt.

        Args:
            common: Tokens that all prompts start with.
            first: (D,) first sequence of each distinct prompt.
            prompt_of: (B,) distinct prompt of each sequence.
            inputs: Inputs of the model for the distinct prompts.
        """
        ids = self.ids[first]
        mask = inputs.get("attention_mask")
        mask = torch.ones_like(ids) if mask is None else mask
        columns, padding = torch.arange(ids.shape[1], device=ids.device), (mask == 0).sum(1, keepdim=True)
        source = torch.where(columns < common + padding, columns - common, columns)
        source = torch.where(columns < common, columns + padding, source)
        ids, mask = ids.gather(1, source), mask.gather(1, source)
        position_ids = (mask.cumsum(1) - 1).clamp(min=0)
        start = {"attention_mask": mask[:1, :common], "position_ids": position_ids[:1, :common]}
        self._model(input_ids=ids[:1, :common], past_key_values=self._cache, use_cache=True, logits_to_keep=1, **start)
        self._cache.batch_select_indices(torch.zeros_like(first))
        rest = {**inputs, "attention_mask": mask, "position_ids": position_ids}
        output = self._model._prefill(ids, self._config, rest)
        rest = {**self._model_kwargs, "attention_mask": mask[prompt_of], "position_ids": position_ids[prompt_of]}
        self._model_kwargs = self._model._update_model_kwargs_for_generation(output, rest)
        self._cache.batch_select_indices(prompt_of)
        return output.logits[:, -1].float()[prompt_of]  # type: ignore[no-any-return]

    def next_logits(self) -> torch.Tensor:
        """Return logits of the next token (L, V), in float32."""
        if self._state is not None:
            return self._step(self.ids[:, -1], self._state)  # type: ignore[misc]  # a state implies a step
        inputs = self._model.prepare_inputs_for_generation(self.ids, next_sequence_length=1, **self._model_kwargs)
        output = self._model(**inputs, return_dict=True)
        self._model_kwargs = self._model._update_model_kwargs_for_generation(output, self._model_kwargs)
        return output.logits[:, -1].float()

    @property
    def uses_step(self) -> bool:
        return self._state is not None

    def process(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the logits processors to (L, V)."""
        return self._processors(self.ids, logits)  # type: ignore[no-any-return]

    def append(self, token: torch.Tensor) -> None:
        """Append the next token (L,) to each active sequence."""
        self.ids = torch.cat([self.ids, token[:, None]], 1)
        column = token.new_full((self.total, 1), self.pad)
        column[self.indices, 0] = token
        self._columns.append(column)

    def evict(self, done: Sequence[bool]) -> None:
        """Remove the sequences for which `done` is True; at least one must remain."""
        rows, device = surviving_indices(done), self.ids.device
        survivors = on_device(rows, device)
        if self._state is not None:
            self._state.evict(rows)
        else:
            evict(self._cache, rows, device)
            self._model_kwargs = _select(self._model_kwargs, survivors, len(self.indices))
        # A processor may keep tensors with one entry per sequence; others hold for any batch.
        for processor in self._processors:
            for name in SEQUENCE_STATE & vars(processor).keys():
                x = getattr(processor, name)
                if isinstance(x, torch.Tensor):
                    setattr(processor, name, x[survivors])
        self.indices, self.ids = self.indices[survivors], self.ids[survivors]

    def drop(self, tokens: int) -> None:
        """Remove the last tokens of all sequences."""
        del self._columns[len(self._columns) - tokens :]

    @property
    def all_ids(self) -> torch.Tensor:
        """(B, P + T) prompts and completions, padded after their end."""
        return torch.cat(self._columns, 1)


CHECK_EVERY, GPU_CHECKS = {"cpu": 1}, 8
"""Type of a device → tokens between two reads of what has ended; the number for others, where a read waits."""


class Progress:
    """Ends of the active sequences, read from the device once per block of tokens.

    Sequences that have ended within a block, `ended` (L,), are padded until its last token and then evicted. Tokens
    after the end of all sequences, and their random numbers, are undone.
    """

    def __init__(self, active: ActiveSequences, config: Any, on_finished: OnFinished | None) -> None:
        self._active, self._max_length, self._on_finished = active, config.max_length, on_finished
        self._start, device = active.ids.shape[1], active.ids.device
        self._block = CHECK_EVERY.get(device.type, GPU_CHECKS)
        self._random: Any = torch.cuda if device.type == "cuda" else torch
        self._begin()

    def _begin(self) -> None:
        self.ended = self._invalid = torch.zeros_like(self._active.indices, dtype=torch.bool)
        self._ends, self._states = list[torch.Tensor](), list[torch.Tensor]()

    def padded(self, token: torch.Tensor) -> torch.Tensor:
        """Return the next token (L,) of a sampler, padding for sequences that have ended."""
        self._invalid = self._invalid | ((token < 0) & ~self.ended)
        return token.clamp(min=0).masked_fill(self.ended, self._active.pad)

    def is_over(self, done: torch.Tensor) -> bool:
        """Return True if all sequences have ended, with this token (L,) or before; after a block, evict those."""
        self.ended = self.ended | done
        self._ends.append(self.ended)
        if self._block > 1:
            self._states.append(self._random.get_rng_state())
        if len(self._ends) < self._block and self._active.ids.shape[1] < self._max_length:
            return False
        *ends, invalid = torch.stack([*self._ends, self._invalid]).tolist()  # the only read of a block
        if any(invalid):
            raise RuntimeError("expected finite logits, got NaN or infinity: no token can be sampled")
        tokens = [sum(column) for column in zip(*ends, strict=True)]  # from the last one of each sequence
        if any(tokens) and self._on_finished is not None:
            self._report([row for row, count in enumerate(tokens) if count], tokens)
        if all(tokens):
            self._active.drop(min(tokens) - 1)
            if self._block > 1:
                self._random.set_rng_state(self._states[-min(tokens)])
            return True
        if any(tokens):  # only now: the callback needs the ids of finished sequences
            self._active.evict([count > 0 for count in tokens])
        self._begin()
        return False

    def _report(self, rows: list[int], tokens: list[int]) -> None:
        """Call `on_finished` with the sequences at `rows`, without the padding after their last token."""
        ids = torch.cat([self._active.indices[:, None], self._active.ids[:, self._start :]], 1)
        read = ids[on_device(rows, ids.device)].tolist()
        completions = [x[: len(x) - tokens[row] + 1] for row, (_, *x) in zip(rows, read, strict=True)]
        with torch.inference_mode(False), torch.no_grad():
            self._on_finished([first for first, *_ in read], completions)  # type: ignore[misc]


def _select(model_kwargs: dict[str, Any], indices: torch.Tensor, batch_size: int) -> dict[str, Any]:
    """Select sequences in the model's inputs; a tensor shared by all sequences, such as positions, stays as it is."""
    batched = {name for name, x in model_kwargs.items() if isinstance(x, torch.Tensor) and len(x) == batch_size}
    return {name: x[indices] if name in batched else x for name, x in model_kwargs.items()}


class UnsupportedCall(Exception):
    """Raised before any random number is drawn if this loop cannot replace that of transformers."""


@torch.no_grad()
def decode(
    model: Any,
    input_ids: Int[torch.Tensor, "B P"],
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    *,
    sampler: Sampler | None = None,
    merge: bool = True,
    share: bool = True,
    return_logprobs: bool = False,
    on_finished: OnFinished | None = None,
    **model_kwargs: Any,
) -> Int[torch.Tensor, "B W"] | Generation:
    """Generate completions; a `custom_generate` of `transformers.generate`.

    Returns:
        Prompts and completions, with log-probs and entropies if requested.

    Raises:
        UnsupportedCall: The call is not supported.
    """
    reason = why_unsupported_call(model, logits_processor, stopping_criteria, generation_config, model_kwargs)
    if reason:
        # No random number has been drawn yet, so the fallback gives the samples of transformers.
        raise UnsupportedCall(reason)
    step = verified_step(model, merge=merge)
    active = ActiveSequences(model, input_ids, generation_config, model_kwargs, logits_processor, step, share=share)
    select = (sampler or MultinomialSampler()) if generation_config.do_sample else greedy
    progress = Progress(active, generation_config, on_finished)
    recorded: list[tuple[torch.Tensor, ...]] | None = [] if return_logprobs else None
    with merged(model) if merge and step is None else nullcontext():
        logits = active.prefill()
        # Without a step the model itself is called, and may keep tensors that must not be inference tensors.
        with torch.inference_mode() if active.uses_step else nullcontext():
            while True:
                token = progress.padded(select(active.process(logits), active.indices, active.total))
                if recorded is not None:
                    statistics = token_statistics(logits, token, generation_config)
                    recorded.append((active.indices, *(x.masked_fill(progress.ended, 0.0) for x in statistics)))
                active.append(token)
                if progress.is_over(stopping_criteria(active.ids, None)):
                    break
                logits = active.next_logits()
    ids = active.all_ids
    return ids if recorded is None else generation_from_steps(ids, recorded[: ids.shape[1] - input_ids.shape[1]])
