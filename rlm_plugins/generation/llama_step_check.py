"""Whether the step that is written down is a model's own: its logits are held to the model's once, before use."""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import DynamicCache

from rlm_plugins.generation.kv_cache import make_roomy
from rlm_plugins.generation.kv_state import KVState
from rlm_plugins.generation.llama_modules import Other
from rlm_plugins.generation.llama_step import Step
from rlm_plugins.kernels.rng_guard import FAILS
from rlm_plugins.packing.forward import causal_model

logger = logging.getLogger(__name__)
_SAME: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
ROUNDING = 1e-4
"""Of the largest logit, by which the others may differ."""


def step_of(model: Any) -> Step | None:
    """The step of a model that is of the kind, and gives its logits; None: of any other. Draws no random number.

    Args:
        model: With or without adapters, which the step adds to their base.
    """
    if not _SAME.get(model, True):
        return None
    try:
        step = Step(model)
    except Other:
        return None
    if model not in _SAME:
        _SAME[model] = _is_same(step, causal_model(model))
        if not _SAME[model]:
            logger.warning("the model is made of Llama's pieces and reads otherwise: it is called module by module")
    return step if _SAME[model] else None


@torch.no_grad()
def _is_same(step: Step, model: Any) -> bool:
    """A token of each of three rows, one of them padded, after four others."""
    ids = torch.arange(3 * 5, device=model.device).view(3, 5) * 7 % model.config.get_text_config().vocab_size
    there = torch.ones_like(ids)
    there[1, :2] = 0
    places = (there.cumsum(1) - 1).clamp(min=0)

    cache = DynamicCache(config=model.config)
    make_roomy(cache)
    before = {"attention_mask": there[:, :-1], "position_ids": places[:, :-1]}
    model(input_ids=ids[:, :-1], past_key_values=cache, use_cache=True, **before)
    given = {"attention_mask": there, "position_ids": places[:, -1:], "past_key_values": cache}
    usual = model(input_ids=ids[:, -1:], use_cache=True, **given).logits[:, -1]
    cache.crop(-1)
    try:
        found = step(ids[:, -1], KVState(given, torch.arange(len(ids), device=ids.device)))
    except FAILS:
        return False
    return usual.shape == found.shape and bool((usual - found).abs().max() <= ROUNDING * usual.abs().max())
