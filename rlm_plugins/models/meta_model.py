"""Models on PyTorch's meta device, whose weights have shapes and dtypes but no memory, to count bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.models.auto_class import auto_class
from rlm_plugins.recipe.trainer_settings import adapter_config

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
    from peft import get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = sorted({name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
    try:
        adapted = get_peft_model(model, adapter_config(lora))
    except (ValueError, TypeError, KeyError, ImportError) as error:  # target modules that the model lacks, say
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
    import torch

    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    return [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
