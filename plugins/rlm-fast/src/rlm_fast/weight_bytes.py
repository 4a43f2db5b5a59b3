"""Bytes of the weights of a model on the meta device: frozen, quantized, sharded, and copied by autocast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rlm_plugins.models import scratch

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from rlm_fast.memory_estimate import Load

_skeletons: dict[tuple[str, str], torch.nn.Module] = {}


def skeleton(config: PretrainedConfig, lora: Mapping[str, Any] | None) -> torch.nn.Module:
    """Return the model on the meta device with its adapters; the last four are kept, since an adapter takes seconds."""
    key = (config.to_json_string(use_diff=False), repr(lora))
    if key not in _skeletons:
        while len(_skeletons) > 3:
            _skeletons.pop(next(iter(_skeletons)))
        _skeletons[key] = scratch.skeleton(config, lora)
    return _skeletons[key]


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


def sharded_bytes(frozen: int, trained: int, load: Load) -> dict[str, int]:
    """Return the bytes of weights, gradients and optimizer state of one process: ZeRO-2 does not shard weights."""
    shards = load.processes if load.sharding != "none" else 1
    of_weights = 1 if load.sharding == "zero2" else shards
    terms = {"frozen weights": (frozen, of_weights), "trained weights": (trained, of_weights)}
    terms |= {"gradients": (trained, shards), "optimizer state": (int(trained * load.optimizer_state), shards)}
    return {name: math.ceil(size / count) for name, (size, count) in terms.items()}


def gathered_bytes(model: torch.nn.Module, load: Load, during_update: bool) -> dict[str, int]:
    """Return the bytes of sharded weights that a process gathers: those of the largest layer, or of the embeddings.

    TRL gathers all weights under ZeRO-3 before it generates (`ds3_gather_for_generation`).
    """
    if load.sharding not in ("fsdp2", "zero3") or not (during_update or load.generated):
        return {}
    sizes = [p.numel() * p.element_size() for p in model.parameters()]
    if load.sharding == "zero3" and not during_update:
        return {"gathered weights": sum(sizes)}
    layers = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
    layer = sum(p.numel() * p.element_size() for p in layers[0].parameters())
    return {"gathered weights": max(layer, *sizes)}


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
