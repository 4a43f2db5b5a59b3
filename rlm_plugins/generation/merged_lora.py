"""Linear layers as the policy writes with them: one product each, its weight laid out for few rows.

A LoRA adapter is added to its base, ``W + s · B A``, where a layer has one. No weight is touched: a copy does the
layer's work for a while. So there is nothing to take back, and tied weights stay what they are. It is done in float32
only: in bfloat16 the sum is rounded to eight bits, and a young adapter is lost in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rlm_plugins.kernels.cpu_linear import Product, pays_to_lay
from rlm_plugins.kernels.plain_linear import adapters, base_of, is_alone, is_cast, is_mergeable, upright


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """While it lasts, every layer whose adapter can be added to its base exactly works as their sum.

    So do large layers without an adapter, where it pays to lay their weights out.

    Args:
        model: Any.
    """
    layers = _with_copies(model)
    try:
        for layer in layers:
            layer.forward = Product(summed(layer), base_of(layer).bias)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def summed(layer: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    """The weight (O, I) of a linear layer, its adapter added.

    Args:
        layer: `is_alone`.
        out: (O, I) to be written to; None: where there is no adapter it is the layer's own.
    """
    base = base_of(layer)
    weight = upright(base, base.weight.detach())
    for name in adapters(layer) if base is not layer else ():
        a, b = layer.lora_A[name].weight.detach(), layer.lora_B[name].weight.detach()
        weight = torch.addmm(weight, b, a, alpha=layer.scaling[name], out=out)
    return weight if out is None or weight is out else out.copy_(weight)


def is_copied(layer: Any) -> bool:
    """Whether that product has a weight of its own."""
    return is_mergeable(layer) or pays_to_lay(layer.weight)


def bytes_of_copies(model: Any) -> int:
    """What the copies hold while they stand there."""
    weights = [base_of(layer).weight for layer in _with_copies(model)]
    return sum(weight.numel() * weight.element_size() for weight in weights)


def _with_copies(model: Any) -> list[Any]:
    if is_cast(model):
        return []
    alone = [layer for layer in model.modules() if is_alone(layer)]
    bases = {base_of(layer) for layer in alone if base_of(layer) is not layer}
    return [layer for layer in alone if layer not in bases and is_copied(layer)]
