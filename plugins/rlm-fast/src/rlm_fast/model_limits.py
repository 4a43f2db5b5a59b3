"""Properties of a model that limit fast paths."""

from __future__ import annotations

from typing import Any

import torch

from rlm_plugins.models.adapters import causal_model

IMAGES = "the model takes images"
"""Reason for stock passes and stock decoding."""


def has_vision(model: Any) -> bool:
    """Return True if a transformers model has a vision tower."""
    return getattr(model.config, "vision_config", None) is not None


def has_dropout(model: Any) -> bool:
    """Return True if a causal language model has dropout in train mode, in a module or by its config."""
    base = causal_model(model)
    in_modules = any(module.p > 0 for module in base.modules() if isinstance(module, torch.nn.Dropout))
    return in_modules or config_has_dropout(base.config.get_text_config())


def config_has_dropout(config: Any) -> bool:
    """Return True if a text config has attention dropout, which no module shows."""
    return any(getattr(config, name, 0) for name in ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob"))


def position_limit(config: Any) -> int | None:
    """Return the longest sequence (tokens) that is encoded the same in any batch, or None if there is no limit.

    "dynamic" and "longrope" change the rotary angles of all tokens once one position is large. A sequence then depends
    on the longest one in the batch. Others scale attention far from the start. A self-check on short sequences cannot
    detect either.

    Args:
        config: Text config; its `rope_parameters` may be one set, or one for each type of layer.
    """
    parameters = getattr(config, "rope_parameters", None) or {}
    per_layer = [x for x in parameters.values() if isinstance(x, dict)]
    ropes = [parameters] if "rope_type" in parameters else per_layer
    limits = [_rope_limit(rope, config) for rope in ropes]
    return min((limit for limit in limits if limit is not None), default=None)


def _rope_limit(rope: dict[str, Any], config: Any) -> int | None:
    rope_type = rope.get("rope_type") or ""
    if rope_type == "longrope" or rope.get("llama_4_scaling_beta"):
        return rope.get("original_max_position_embeddings") or config.max_position_embeddings  # type: ignore[no-any-return]
    return config.max_position_embeddings if "dynamic" in rope_type else None  # type: ignore[no-any-return]
