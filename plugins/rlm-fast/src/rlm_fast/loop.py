"""Decoding loop with shared prefill and early eviction of finished sequences; the samples are those of transformers.

`generate` of transformers prepares the call (config, logits processors, stopping criteria, cache) and passes it to
this loop (`custom_generate`). Sequences do not depend on each other, and random numbers are drawn for all of them,
evicted ones included. So the remaining sequences get the samples they would get in the full batch.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Int

from rlm_fast.active_sequences import ActiveSequences
from rlm_fast.compatibility import why_unsupported_call
from rlm_fast.llama_step_check import verified_step
from rlm_fast.merged_lora import merged
from rlm_fast.recording import generation_from_steps, token_statistics
from rlm_fast.sampling import MultinomialSampler, Sampler, greedy
from rlm_plugins.rollout.generator_call import Generation, OnFinished


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

    Args:
        model: The transformers model; adapters are inside.
        input_ids: Padded on the left.
        logits_processor: Applied to the logits of active sequences.
        stopping_criteria: Applied to the ids of active sequences.
        generation_config: Prepared `GenerationConfig`.
        sampler: Selects tokens if the config samples; None: as transformers does.
        merge: Decode with adapters merged into copies of their base weights; False: without copies.
        share: Prefill what prompts start with only once.
        return_logprobs: Record log-probs and entropies.
        on_finished: Called with the indices and completions of sequences as soon as they are finished.
        **model_kwargs: Prepared `attention_mask`, `position_ids`, `past_key_values`.

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
    recorded: list[tuple[torch.Tensor, ...]] | None = [] if return_logprobs else None
    with merged(model) if merge and step is None else nullcontext():
        logits = active.prefill()
        # Without a step the model itself is called, and may keep tensors that must not be inference tensors.
        with torch.inference_mode() if active.uses_step else nullcontext():
            while True:
                token = select(active.process(logits), active.indices, active.total)
                if recorded is not None:
                    recorded.append((active.indices, *token_statistics(logits, token, generation_config)))
                active.append(token)
                done = stopping_criteria(active.ids, None)
                if done.any():  # checked once per token, since a GPU synchronizes here
                    if on_finished is not None:
                        completions = active.ids[done, input_ids.shape[1] :].tolist()
                        with torch.inference_mode(False), torch.no_grad():
                            on_finished(active.indices[done].tolist(), completions)
                    if done.all():
                        break
                    # Only now: the callback above needs the ids of finished sequences.
                    active.evict(done)
                logits = active.next_logits()
    return active.all_ids if recorded is None else generation_from_steps(active.all_ids, recorded)
