"""Bytes of the weights of a model on the meta device: frozen, quantized, and copied by autocast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import PretrainedConfig

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
