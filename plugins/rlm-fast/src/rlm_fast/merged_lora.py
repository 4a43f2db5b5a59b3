"""Merged LoRA weights for decoding: one product per linear layer, its weight packed for few sequences.

An adapter is merged into its base, ``W + s · B A``, in a copy that computes the layer's output during decoding. No
weight of the model changes, so nothing must be restored, and tied weights stay tied. Merging is done in float32 only:
bfloat16 has eight bits of precision, so rounding would remove the small updates of a new adapter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rlm_fast.cpu_linear import PackedLinear, packing_pays
from rlm_fast.plain_linear import adapters, base_of, is_alone, is_cast, is_mergeable, output_first

MERGE_TOKENS = 32
"""Least tokens of a completion for which copies pay: they save the libraries from packing weights at each token."""


def merging_pays(config: Any) -> bool:
    """Return True if completions may be long enough for copies; `config` is a `GenerationConfig` of transformers."""
    return (config.max_new_tokens or config.max_length or 0) >= MERGE_TOKENS


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """Compute every layer with a mergeable adapter as one product inside the context.

    Large layers without an adapter are replaced too, if packing their weight pays off.

    Args:
        model: Any module.
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
