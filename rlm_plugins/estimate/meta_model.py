"""Models without their numbers: on PyTorch's meta device, which knows shapes and types, weights can be counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RecipeError

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

FOUR_BIT = (4 + 0.127) / 8
"""Bytes per weight in 4-bit NormalFloat with double quantisation: 4 bits and 0.127 of constants (2305.14314 §3)."""


def skeleton(config: PretrainedConfig, lora: Mapping[str, Any] | None, where: str = "model.lora") -> torch.nn.Module:
    """The model with its adapters, on the meta device.

    Args:
        config: The model's. Its `dtype` is what the weights are held in.
        lora: Fields of ``peft.LoraConfig``, or None to train all weights.
        where: Where the recipe says them.

    Raises:
        RecipeError: PEFT refuses the adapter, or TRL does.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(config, "dtype", None) or torch.float32)
        return model if lora is None else _adapted(model, lora, where)


def _adapted(model: Any, lora: Mapping[str, Any], where: str) -> torch.nn.Module:
    import torch
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = sorted({name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
    try:
        made = get_peft_model(model, LoraConfig(**{"task_type": "CAUSAL_LM", **lora}))
    except ValueError as error:  # such as target modules that this model does not have
        raise RecipeError(f"PEFT refuses: {error}", where=where, allowed=", ".join(layers)) from None
    if isinstance(made.get_output_embeddings(), BaseTunerLayer):
        raise RecipeError(
            "TRL trains no adapter on the language head, whose weight it reads itself",
            where=f"{where}.target_modules",
            hint="leave it out; `modules_to_save: [lm_head]` trains it whole",
        )
    return made


def trained_bytes(model: torch.nn.Module) -> int:
    """Bytes of the weights that are trained."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)


def frozen_bytes(model: torch.nn.Module, config: PretrainedConfig) -> int:
    """Bytes of the frozen weights; four-bit ones are those of the linear layers inside the blocks."""
    frozen = [p for p in model.parameters() if not p.requires_grad]
    total = sum(p.numel() * p.element_size() for p in frozen)
    if not is_four_bit(config):
        return total
    small = [p for p in (m.weight for m in _linear(model)) if not p.requires_grad]
    return int(total - sum(p.numel() * (p.element_size() - FOUR_BIT) for p in small))


def half_precision_copies(model: torch.nn.Module) -> int:
    """Bytes of the copies in half precision that autocast makes of float32 weights."""
    return 2 * sum(m.weight.numel() for m in _linear(model) if m.weight.element_size() == 4)


def is_four_bit(config: PretrainedConfig) -> bool:
    """Whether a config asks for four-bit weights."""
    quantised: Any = getattr(config, "quantization_config", None)
    said = quantised if isinstance(quantised, Mapping) else vars(quantised) if quantised is not None else {}
    return bool(said.get("load_in_4bit") or said.get("_load_in_4bit"))


def _linear(model: torch.nn.Module) -> list[Any]:
    """Linear layers, without the one that predicts tokens."""
    import torch

    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    return [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
