"""Self-check of `LlamaStep`: its logits are compared with those of the model once, before first use."""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import DynamicCache

from rlm_fast.kv_cache import preallocate
from rlm_fast.llama_modules import UnsupportedModel
from rlm_fast.llama_step import LlamaStep
from rlm_fast.prompt_tree import PromptTree
from rlm_fast.support import MODEL_ERRORS
from rlm_plugins.models.adapters import causal_model

logger = logging.getLogger(__name__)
_AGREES: WeakKeyDictionary[Any, dict[bool, bool]] = WeakKeyDictionary()
"""Result per model, with and without copied weights."""
TOLERANCE = 1e-4
"""Largest difference of a logit, as a share of the largest logit."""


def verified_step(model: Any, *, merge: bool = True) -> LlamaStep | None:
    """Return the step of a Llama-type model whose logits agree, or None. Leaves the RNG state as it is.

    Args:
        model: With or without adapters.
        merge: The step copies weights, with adapters merged.
    """
    results = _AGREES.setdefault(model, {})
    if not results.get(merge, True):
        return None
    try:
        step = LlamaStep(model, merge)
    except UnsupportedModel:
        return None
    if merge not in results:
        results[merge] = _agrees(step, causal_model(model))
        if not results[merge]:
            logger.warning("decoding calls the model module by module: its logits differ from a Llama-type forward")
    return step if results[merge] else None


@torch.no_grad()
def _agrees(step: LlamaStep, model: Any) -> bool:
    """Compare the logits after four tokens and after one more, for three sequences that start alike, one padded."""
    ids = torch.arange(3 * 5, device=model.device).view(3, 5) * 7 % model.config.get_text_config().vocab_size
    ids[1, 2:4], ids[2, 0] = ids[0, :2], ids[0, 0]
    attention_mask = torch.ones_like(ids)
    attention_mask[1, :2] = 0
    position_ids = (attention_mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False).logits
    expected = logits[:, -2:]

    cache = DynamicCache(config=model.config)
    preallocate(cache)
    prompts = [ids[0, :4].tolist(), ids[1, 2:4].tolist(), ids[2, :4].tolist()]
    try:
        tree = PromptTree(prompts, ids.device, min_saved=1)
        first, state = tree.prefill(step, cache, torch.arange(len(ids), device=ids.device))
        actual = torch.stack([first, step(ids[:, -1], state)], 1)
    except MODEL_ERRORS:
        return False
    return expected.shape == actual.shape and bool((expected - actual).abs().max() <= TOLERANCE * expected.abs().max())
