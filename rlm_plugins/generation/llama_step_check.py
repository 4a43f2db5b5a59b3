"""Self-check of `LlamaStep`: its logits are compared with those of the model once, before first use."""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import DynamicCache

from rlm_plugins.generation.kv_cache import preallocate
from rlm_plugins.generation.kv_state import KVState
from rlm_plugins.generation.llama_modules import UnsupportedModel
from rlm_plugins.generation.llama_step import LlamaStep
from rlm_plugins.kernels.model_traits import causal_model
from rlm_plugins.kernels.rng_guard import MODEL_ERRORS

logger = logging.getLogger(__name__)
_AGREES: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
TOLERANCE = 1e-4
"""Largest difference of a logit, as a share of the largest logit."""


def verified_step(model: Any) -> LlamaStep | None:
    """Return the step of a Llama-type model whose logits agree, or None. Leaves the RNG state as it is.

    Args:
        model: With or without adapters, which the step merges.
    """
    if not _AGREES.get(model, True):
        return None
    try:
        step = LlamaStep(model)
    except UnsupportedModel:
        return None
    if model not in _AGREES:
        _AGREES[model] = _agrees(step, causal_model(model))
        if not _AGREES[model]:
            logger.warning("decoding calls the model module by module: its logits differ from a Llama-type forward")
    return step if _AGREES[model] else None


@torch.no_grad()
def _agrees(step: LlamaStep, model: Any) -> bool:
    """Compare the logits of one token after four others, for three sequences, one of them padded."""
    ids = torch.arange(3 * 5, device=model.device).view(3, 5) * 7 % model.config.get_text_config().vocab_size
    attention_mask = torch.ones_like(ids)
    attention_mask[1, :2] = 0
    position_ids = (attention_mask.cumsum(1) - 1).clamp(min=0)

    cache = DynamicCache(config=model.config)
    preallocate(cache)
    prompt = {"attention_mask": attention_mask[:, :-1], "position_ids": position_ids[:, :-1]}
    model(input_ids=ids[:, :-1], past_key_values=cache, use_cache=True, **prompt)
    last = {"attention_mask": attention_mask, "position_ids": position_ids[:, -1:], "past_key_values": cache}
    expected = model(input_ids=ids[:, -1:], use_cache=True, **last).logits[:, -1]
    cache.crop(-1)
    try:
        logits = step(ids[:, -1], KVState(last, torch.arange(len(ids), device=ids.device)))
    except MODEL_ERRORS:
        return False
    return expected.shape == logits.shape and bool((expected - logits).abs().max() <= TOLERANCE * expected.abs().max())
