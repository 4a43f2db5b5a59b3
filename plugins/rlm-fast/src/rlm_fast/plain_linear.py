"""Checks that a linear layer is unmodified: its output is its product, with or without a LoRA adapter.

Code that computes the layer in another way checks this first.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from transformers.pytorch_utils import Conv1D

LORA: set[type] = {Linear}
"""Classes of LoRA layers that compute what PEFT's `Linear` does; `fused_lora.py` adds its own."""


def is_alone(layer: Any) -> bool:
    """Return True if one product, with the adapter merged if there is one, gives the layer's output."""
    return is_plain(layer) or is_mergeable(layer)


def is_mergeable(layer: Any) -> bool:
    """Return True if a module is a LoRA layer in float32 whose output is the sum of two plain products."""
    # Exact type: a subclass may compute anything.
    if type(layer) not in LORA or layer.disable_adapters or layer.merged or "forward" in vars(layer):
        return False
    active = adapters(layer)
    if not active or any(name in layer.lora_variant or layer.lora_bias[name] for name in active):
        return False
    if any(_is_modified(layer, name) for name in active):
        return False
    base = layer.base_layer
    return is_plain(base) and all(_is_float(x) for x in (base.weight, *_adapter_weights(layer, active)))


def adapters(layer: Any) -> list[str]:
    """Return the names of the active adapters of a LoRA layer."""
    return [name for name in layer.active_adapters if name in layer.lora_A]


def _is_modified(layer: Any, name: str) -> bool:
    """Return True if an adapter has dropout, hooks or a patched forward."""
    dropout = layer.lora_dropout[name]
    is_on = dropout.training and not isinstance(dropout, torch.nn.Identity)
    return is_on or any(is_patched(x[name]) for x in (layer.lora_dropout, layer.lora_A, layer.lora_B))


def is_plain(layer: Any) -> bool:
    """Return True if a module is a linear layer without quantization, wrapper, hooks or patched forward."""
    return type(layer) in (torch.nn.Linear, Conv1D) and not is_patched(layer)


def is_patched(module: Any) -> bool:
    """Return True if a module has hooks or a patched forward."""
    forward = module._forward_pre_hooks or module._forward_hooks or "forward" in vars(module)
    return bool(forward or module._backward_pre_hooks or module._backward_hooks)


def output_first(base: Any, weight: torch.Tensor) -> torch.Tensor:
    """Return the weight of a plain layer as (O, I); a Conv1D holds (I, O)."""
    return weight if isinstance(base, torch.nn.Linear) else weight.T


def _adapter_weights(layer: Any, active: list[str]) -> list[torch.Tensor]:
    return [side[name].weight for side in (layer.lora_A, layer.lora_B) for name in active]


def _is_float(x: torch.Tensor) -> bool:
    """Return True if products with a tensor are computed in float32."""
    is_autocast = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
    return x.dtype == torch.float32 and not is_autocast


def base_of(layer: Any) -> Any:
    """Return the linear layer that a LoRA layer wraps; any other layer itself."""
    return getattr(layer, "base_layer", layer)


def is_cast(model: Any) -> bool:
    """Return True if accelerate casts a model to half precision at each call, though its weights are float32."""
    return "_original_forward" in vars(model)
