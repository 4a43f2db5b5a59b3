"""The generator ``fast``: the decoding loop if it supports a call, else `generate` of transformers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch

from rlm_fast.compatibility import why_unsupported_call, why_unsupported_model
from rlm_fast.loop import UnsupportedCall, decode
from rlm_fast.merged_lora import copied_bytes, merging_pays
from rlm_fast.sampling import sample_inverse_cdf
from rlm_fast.self_check import shares_prefixes, why_self_check_fails
from rlm_plugins.models.adapters import causal_model
from rlm_plugins.rollout.generator_call import Generation, OnFinished

logger = logging.getLogger(__name__)
SAMPLERS = {"as_transformers": None, "inverse_cdf": sample_inverse_cdf}


def fast_generate(
    transformers_generate: Callable[..., Any],
    model: Any,
    inputs: Mapping[str, torch.Tensor],
    config: Any,
    *,
    return_logprobs: bool = False,
    on_finished: OnFinished | None = None,
    merge: bool = True,
    sampling: str = "as_transformers",
) -> torch.Tensor | Generation:
    """Generate what `generate` of a model would, with less work (see `rlm_plugins.hookspecs.rlm_generators`)."""
    try:
        merge = merge and merging_pays(config)
        # Known reasons first: the self-check costs three short generations.
        if reason := why_unsupported_model(model) or why_self_check_fails(model, transformers_generate, merge=merge):
            raise UnsupportedCall(reason)
        loop = partial(
            decode,
            sampler=SAMPLERS[sampling],
            merge=merge,
            share=shares_prefixes(model),
            return_logprobs=return_logprobs,
            on_finished=on_finished,
        )
        return transformers_generate(**inputs, generation_config=config, custom_generate=loop)  # type: ignore[no-any-return]
    except UnsupportedCall as reason:
        _log_fallback(str(reason))
        return transformers_generate(**inputs, generation_config=config)  # type: ignore[no-any-return]


@cache
def _log_fallback(reason: str) -> None:
    """Log a reason once per process."""
    logger.warning("generation falls back to transformers: %s", reason)


def dry_run(model: Any, config: Any, *, merge: bool = True, **_: Any) -> tuple[str | None, int]:
    """Return why `fast_generate` would fall back to transformers, or None, and the bytes of its copied weights.

    Args:
        model: On the meta device, with its adapters, in train or eval mode as during decoding. `generate` of
            transformers prepares the call as usual, and stops before its loop.
        config: `GenerationConfig` of transformers.
        merge: The knob `merge` of the generator.
    """
    if reason := why_unsupported_model(model):
        return reason, 0
    reasons: list[str | None] = []

    def record_reason(
        inner: Any,
        input_ids: Any,
        *,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:
        reasons.append(
            why_unsupported_call(inner, logits_processor, stopping_criteria, generation_config, model_kwargs)
        )
        return input_ids

    ids = torch.zeros(1, 2, dtype=torch.long)
    base = causal_model(model)
    # `generate` takes the device from the first parameter, which must not be the meta device.
    base.register_parameter("_cpu_parameter", torch.nn.Parameter(torch.empty(0)))
    try:
        model.generate(input_ids=ids, attention_mask=ids + 1, generation_config=config, custom_generate=record_reason)
    except Exception:  # the run itself reports what cannot be prepared without weights
        logger.debug("a call of `generate` could not be prepared", exc_info=True)
    finally:
        del base._cpu_parameter
    reason = next(iter(reasons), None)
    return reason, copied_bytes(model) if merge and reason is None and merging_pays(config) else 0
