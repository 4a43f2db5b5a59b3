"""Properties of a model: what limits fast paths, and the bytes of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rlm_plugins.models.adapters import causal_model

if TYPE_CHECKING:
    from transformers import PretrainedConfig


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


FOUR_BIT = (4 + 0.127) / 8
"""Bytes per weight in 4-bit NormalFloat with double quantization: 4 bits and 0.127 of constants (2305.14314 §3)."""


def frozen_bytes(model: torch.nn.Module, config: PretrainedConfig) -> int:
    """Return the bytes of the frozen weights; quantization applies to the linear layers inside the decoder layers."""
    frozen = [p for p in model.parameters() if not p.requires_grad]
    total = sum(p.numel() * p.element_size() for p in frozen)
    width = quantized_bytes(config)
    if width is None:
        return total
    weights = [layer.weight for layer in _linear_layers(model)]
    # PEFT keeps adapters in full precision; only frozen weights are quantized.
    quantized = [p for p in weights if not p.requires_grad]
    return int(total - sum(p.numel() * (p.element_size() - width) for p in quantized))


def half_precision_copies(model: torch.nn.Module) -> int:
    """Return the bytes of the half-precision copies that autocast makes of float32 weights."""
    return 2 * sum(m.weight.numel() for m in _linear_layers(model) if m.weight.element_size() == 4)


def quantized_bytes(config: PretrainedConfig) -> float | None:
    """Return the bytes per quantized weight by the config of a model; None: it has none, or of unknown width."""
    quantization: Any = getattr(config, "quantization_config", None)
    if quantization is None:
        return None
    options = quantization if isinstance(quantization, Mapping) else vars(quantization)
    if options.get("load_in_4bit") or options.get("_load_in_4bit"):
        return FOUR_BIT
    if options.get("load_in_8bit") or options.get("_load_in_8bit"):
        return 1.0
    bits = options.get("bits") or options.get("nbits") or str(options.get("weights") or "").lstrip("intfloa")
    return int(bits) / 8 if str(bits).isdigit() else None


def _linear_layers(model: torch.nn.Module) -> list[Any]:
    """Return the linear layers, without the language head."""
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    return [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
