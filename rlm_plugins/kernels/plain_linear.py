"""What a linear layer does at this moment: its product, perhaps with a LoRA adapter's, and nothing that is not seen.

Who computes it otherwise asks here first.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from transformers.pytorch_utils import Conv1D

LORA: set[type] = {Linear}
"""Classes of LoRA layers that compute as PEFT's does; `lora.py` adds its own."""


def is_alone(layer: Any) -> bool:
    """Whether a product does all that a layer does at this moment, once its adapter is added, if it has one."""
    return is_plain(layer) or is_mergeable(layer)


def is_mergeable(layer: Any) -> bool:
    """Whether a module is a plain LoRA layer that does nothing at this moment but add its product."""
    if type(layer) not in LORA or layer.disable_adapters or layer.merged or "forward" in vars(layer):
        return False
    active = adapters(layer)
    odd = any(name in layer.lora_variant or layer.lora_bias[name] or _is_odd(layer, name) for name in active)
    base = layer.base_layer
    return (
        bool(active) and not odd and is_plain(base) and all(_is_float(x) for x in (base.weight, *_sides(layer, active)))
    )


def adapters(layer: Any) -> list[str]:
    """Those of a LoRA layer that are on."""
    return [name for name in layer.active_adapters if name in layer.lora_A]


def _is_odd(layer: Any, name: str) -> bool:
    dropout = layer.lora_dropout[name]
    drops = dropout.training and not isinstance(dropout, torch.nn.Identity)
    return drops or any(_is_watched(it[name]) for it in (layer.lora_dropout, layer.lora_A, layer.lora_B))


def is_plain(layer: Any) -> bool:
    """Whether it is a linear layer as it was made: not quantised, not surrounded by anything."""
    return type(layer) in (torch.nn.Linear, Conv1D) and not _is_watched(layer)


def _is_watched(module: Any) -> bool:
    forward = module._forward_pre_hooks or module._forward_hooks or "forward" in vars(module)
    return bool(forward or module._backward_pre_hooks or module._backward_hooks)


def upright(base: Any, weight: torch.Tensor) -> torch.Tensor:
    """(O, I) of the weight of a plain layer, as that holds it: a Conv1D has (I, O)."""
    return weight if isinstance(base, torch.nn.Linear) else weight.T


def _sides(layer: Any, active: list[str]) -> list[torch.Tensor]:
    return [side[name].weight for side in (layer.lora_A, layer.lora_B) for name in active]


def _is_float(x: torch.Tensor) -> bool:
    casts = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
    return x.dtype == torch.float32 and not casts


def base_of(layer: Any) -> Any:
    """The linear layer that an adapter stands beside; one without is its own."""
    return getattr(layer, "base_layer", layer)


def is_cast(model: Any) -> bool:
    """Whether accelerate has a model compute in half precision when it is called; to whoever looks it is float32."""
    return "_original_forward" in vars(model)
