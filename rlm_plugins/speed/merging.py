"""A LoRA adapter added to its base while the policy writes: one product per layer instead of three.

No weight is touched: beside each layer stands a copy of its base with ``W + s · B A``, which does the layer's work for
a while. So there is nothing to take back, and tied weights stay what they are. It is done in float32 only: in bfloat16
the sum is rounded to eight bits, and a young adapter is lost in them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """While it lasts, every layer whose adapter can be added to its base exactly works as their sum.

    Args:
        model: Any; without adapters nothing happens.
    """
    layers = [layer for layer in model.modules() if _is_mergeable(layer)]
    try:
        for layer in layers:
            layer.forward = _sum(layer).forward
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def linear(layer: Any) -> torch.nn.Linear | None:
    """The linear layer that does the work of a module at this moment, if one alone does."""
    work = layer.forward
    return work.__self__ if getattr(work, "__func__", None) is torch.nn.Linear.forward else None


def bytes_of_copies(model: Any) -> int:
    """What the copies hold while they stand there."""
    weights = [layer.base_layer.weight for layer in model.modules() if _is_mergeable(layer)]
    return sum(weight.numel() * weight.element_size() for weight in weights)


def _is_mergeable(layer: Any) -> bool:
    """Whether a module is a plain LoRA layer that does nothing at this moment but add its product."""
    from peft.tuners.lora.layer import Linear

    if type(layer) is not Linear or layer.disable_adapters or layer.merged or "forward" in vars(layer):
        return False
    active = [name for name in layer.active_adapters if name in layer.lora_A]
    odd = any(name in layer.lora_variant or layer.lora_bias[name] or _drops(layer, name) for name in active)
    base = layer.base_layer
    return (
        bool(active) and not odd and _is_plain(base) and all(_is_float(x) for x in (base.weight, *_of(layer, active)))
    )


def _drops(layer: Any, name: str) -> bool:
    dropout = layer.lora_dropout[name]
    return dropout.training and not isinstance(dropout, torch.nn.Identity)


def _is_plain(base: Any) -> bool:
    """Whether it is a linear layer as it was made: not quantised, not surrounded by anything."""
    from transformers.pytorch_utils import Conv1D

    watched = base._forward_pre_hooks or base._forward_hooks or "forward" in vars(base)
    return type(base) in (torch.nn.Linear, Conv1D) and not watched


def _of(layer: Any, active: list[str]) -> list[torch.Tensor]:
    return [side[name].weight for side in (layer.lora_A, layer.lora_B) for name in active]


def _is_float(x: torch.Tensor) -> bool:
    casts = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
    return x.dtype == torch.float32 and not casts


def _sum(layer: Any) -> Any:
    """A copy of the base of a LoRA layer, with the sum in place of its weight."""
    base = copy.copy(layer.base_layer)
    change = sum(layer.get_delta_weight(name) for name in layer.active_adapters if name in layer.lora_A)
    base._parameters = {**base._parameters, "weight": base.weight.detach() + change}
    return base
