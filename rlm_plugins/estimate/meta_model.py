"""Models on PyTorch's meta device, whose weights have shapes and dtypes but no memory, to count bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.kernels.auto_class import auto_class

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

FOUR_BIT = (4 + 0.127) / 8
"""Bytes per weight in 4-bit NormalFloat with double quantization: 4 bits and 0.127 of constants (2305.14314 §3)."""


def skeleton(config: PretrainedConfig, lora: Mapping[str, Any] | None, where: str = "model.lora") -> torch.nn.Module:
    """Build a model with its adapters on the meta device.

    Args:
        config: Config of the model; weights are in its `dtype`.
        lora: Fields of ``peft.LoraConfig``, or None to train all weights.
        where: Key of the recipe with these fields, for errors.

    Raises:
        RecipeError: PEFT rejects the adapter, or TRL does not support it.
    """
    import torch

    with torch.device("meta"):
        model = auto_class(config).from_config(config, dtype=getattr(config, "dtype", None) or torch.float32)
        return model if lora is None else _adapted(model, lora, where)


def _adapted(model: Any, lora: Mapping[str, Any], where: str) -> torch.nn.Module:
    import torch
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = sorted({name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
    try:
        adapted = get_peft_model(model, LoraConfig(**{"task_type": "CAUSAL_LM", **lora}))
    except ValueError as error:  # such as target modules that the model does not have
        raise RecipeError(f"PEFT rejects the adapter: {error}", where=where, allowed=", ".join(layers)) from None
    if isinstance(adapted.get_output_embeddings(), BaseTunerLayer):
        raise RecipeError(
            "TRL does not support an adapter on the language head, whose weight it uses directly",
            where=f"{where}.target_modules",
            hint="leave it out; `modules_to_save: [lm_head]` trains all of it",
        )
    return adapted


def trained_bytes(model: torch.nn.Module) -> int:
    """Return the bytes of the trained weights."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)


def frozen_bytes(model: torch.nn.Module, config: PretrainedConfig) -> int:
    """Return the bytes of the frozen weights; four bits apply to the linear layers inside the decoder layers."""
    frozen = [p for p in model.parameters() if not p.requires_grad]
    total = sum(p.numel() * p.element_size() for p in frozen)
    if not is_four_bit(config):
        return total
    weights = [layer.weight for layer in _linear_layers(model)]
    # PEFT keeps adapters in full precision; only frozen weights are quantized.
    quantized = [p for p in weights if not p.requires_grad]
    return int(total - sum(p.numel() * (p.element_size() - FOUR_BIT) for p in quantized))


def half_precision_copies(model: torch.nn.Module) -> int:
    """Return the bytes of the half-precision copies that autocast makes of float32 weights."""
    return 2 * sum(m.weight.numel() for m in _linear_layers(model) if m.weight.element_size() == 4)


def is_four_bit(config: PretrainedConfig) -> bool:
    """Return True if a config sets four-bit weights."""
    quantization: Any = getattr(config, "quantization_config", None)
    if quantization is None:
        return False
    options = quantization if isinstance(quantization, Mapping) else vars(quantization)
    return bool(options.get("load_in_4bit") or options.get("_load_in_4bit"))


def _linear_layers(model: torch.nn.Module) -> list[Any]:
    """Return the linear layers, without the language head."""
    import torch

    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    return [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
