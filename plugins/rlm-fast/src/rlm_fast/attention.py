"""Attention over a packed layout (`tree_attention.py`), in place of a model's own.

It is registered among the attention functions of transformers, and acts in passes with a layout only. All other passes
use the model's own function, so generation is untouched. Gradients of all sequences accumulate in a shared prefix.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlm_fast.layout import Layout

SUPPORTED = ("sdpa", "eager")
"""Attention implementations that it can wrap."""
PREFIX = "rlm_"
"""Prefix of the names under which wrapped implementations are registered."""
SCORE_OPTIONS = ("softcap", "position_bias", "s_aux")
"""Options that change attention scores; at initialization perhaps too little for a self-check to detect."""


def implementation(model: Any) -> str:
    """Return the attention implementation of a transformers model, without our prefix."""
    return str(model.config._attn_implementation).removeprefix(PREFIX)


def install_attention(model: Any) -> None:
    """Let a transformers model with an implementation in `SUPPORTED` take passes with a layout."""
    name = model.config._attn_implementation
    if name in SUPPORTED:
        wrapped = PREFIX + name
        if wrapped not in ALL_ATTENTION_FUNCTIONS.valid_keys():
            AttentionInterface.register(wrapped, _wrap(name))
            AttentionMaskInterface.register(wrapped, ALL_MASK_ATTENTION_FUNCTIONS[name])
        model.set_attn_implementation(wrapped)


def uninstall_attention(model: Any) -> None:
    """Undo `install_attention`."""
    if model.config._attn_implementation != implementation(model):
        model.set_attn_implementation(implementation(model))


def _wrap(name: str) -> Callable[..., Any]:
    """Return an attention function that falls back to implementation `name` without a layout."""

    def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any) -> Any:
        layout: Layout | None = options.pop("layout", None)
        if layout is not None:
            _check(attention_mask, options)
            return layout.attention(query, key, value, options.get("scaling")), None
        eager = name == "eager" and _eager_attention(module)
        return (eager or ALL_ATTENTION_FUNCTIONS[name])(module, query, key, value, attention_mask, **options)

    return attention


def _check(attention_mask: torch.Tensor | None, options: Mapping[str, Any]) -> None:
    """Raise TypeError, which a self-check reports, if a model changes scores or passes a mask of its own."""
    unsupported = [name for name in SCORE_OPTIONS if options.get(name) is not None]
    if unsupported:
        raise TypeError(f"padding-free passes do not support `{unsupported[0]}` of attention")
    # `model_inputs` passes a mask of one element; a larger one was created by the model.
    if attention_mask is not None and attention_mask.numel() > 1:
        raise TypeError("padding-free passes do not support a model that makes its own attention mask")


def _eager_attention(module: Any) -> Callable[..., Any]:
    """Return the eager attention of a model, which each modeling file of transformers defines beside its modules."""
    function: Callable[..., Any] = sys.modules[type(module).__module__].eager_attention_forward  # type: ignore[attr-defined]
    return function
