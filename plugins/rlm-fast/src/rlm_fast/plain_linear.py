"""Linear layers whose output is their product, with or without LoRA, and their merged weights for decoding.

An adapter is merged into its base, ``W + s · B A``, in a copy that computes the layer's output during decoding. No
weight of the model changes, so nothing must be restored, and tied weights stay tied. Merging is done in float32 only:
bfloat16 has eight bits of precision, so rounding would remove the small updates of a new adapter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from transformers.pytorch_utils import Conv1D

from rlm_fast.cpu_linear import PackedLinear, packing_pays

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


MERGE_TOKENS = 32
"""Least tokens of a completion for which copies pay: they save the libraries from packing weights at each token."""


def merging_pays(config: Any) -> bool:
    """Return True if completions may be long enough for copies; `config` is a `GenerationConfig` of transformers."""
    return (config.max_new_tokens or config.max_length or 0) >= MERGE_TOKENS


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """Compute every layer with a mergeable adapter as one product inside the context.

    Large layers without an adapter are replaced too, if packing their weight pays off.
    """
    layers = _copied_layers(model)
    try:
        for layer in layers:
            layer.forward = PackedLinear(merged_weight(layer), base_of(layer).bias)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def merged_weight(layer: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the weight (O, I) of a linear layer with its adapter merged.

    Args:
        layer: A layer for which `is_alone` holds.
        out: (O, I) buffer for the result; None: a layer without adapter returns its own weight.
    """
    base = base_of(layer)
    weight = output_first(base, base.weight.detach())
    for name in adapters(layer) if base is not layer else ():
        a, b = layer.lora_A[name].weight.detach(), layer.lora_B[name].weight.detach()
        weight = torch.addmm(weight, b, a, alpha=layer.scaling[name], out=out)
    return weight if out is None or weight is out else out.copy_(weight)


def is_copied(layer: Any) -> bool:
    """Return True if the merged or packed weight of a layer needs memory of its own."""
    return is_mergeable(layer) or packing_pays(layer.weight)


def copied_bytes(model: Any) -> int:
    """Return the bytes of the copies that `merged` makes."""
    weights = [base_of(layer).weight for layer in _copied_layers(model)]
    return sum(weight.numel() * weight.element_size() for weight in weights)


def _copied_layers(model: Any) -> list[Any]:
    """Return the layers that `merged` replaces."""
    if is_cast(model):
        return []
    alone = [layer for layer in model.modules() if is_alone(layer)]
    # The base inside a LoRA layer is never called while the layer is replaced.
    bases = {base_of(layer) for layer in alone if base_of(layer) is not layer}
    return [layer for layer in alone if layer not in bases and is_copied(layer)]
