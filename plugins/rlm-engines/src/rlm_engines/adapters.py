"""Requirements of engines on the policy's adapter, and settings that they share."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from rlm_plugins.errors import RecipeError

TRAINER_SETTINGS: Mapping[str, Any] = {"use_vllm": True, "engine_check": True}
"""Settings that every engine of this package fixes: TRL samples with an engine, which is checked after each sync."""
_OFF = "generator=none engine=none trainer.use_vllm=false"
_FURTHER = ("use_dora", "modules_to_save", "trainable_token_indices", "layers_pattern", "target_parameters")
"""Fields of ``peft.LoraConfig`` with weights that vLLM does not load from an adapter."""
MAX_RANK = 512
"""Largest rank of an adapter in vLLM."""


def check_adapter(lora: Mapping[str, Any] | None) -> None:
    """Check that vLLM can load an adapter.

    Args:
        lora: Fields of ``peft.LoraConfig``; None: all weights are trained.

    Raises:
        RecipeError: It names the field.
    """
    if lora is None:
        return
    hint = "plain LoRA, `engine: reference`, or all weights (no `model.lora`)"
    if (kind := str(lora.get("peft_type") or "LORA").rpartition(".")[2].upper()) != "LORA":
        raise RecipeError(f"vLLM loads adapters of the type LORA, got {kind}", where="model.lora.peft_type", hint=hint)
    for field in _FURTHER:
        if lora.get(field):
            raise RecipeError(f"vLLM cannot load what `{field}` trains", where=f"model.lora.{field}", hint=hint)
    if lora.get("bias") not in (None, "none"):
        raise RecipeError("vLLM loads no biases from an adapter", where="model.lora.bias", hint="`bias: none`")
    if max_rank(lora) > MAX_RANK:
        raise RecipeError(f"vLLM loads ranks up to {MAX_RANK}, got {max_rank(lora)}", where="model.lora.r")


def max_rank(lora: Mapping[str, Any]) -> int:
    """Return the largest rank of an adapter."""
    return max([int(lora.get("r") or 8), *(int(rank) for rank in (lora.get("rank_pattern") or {}).values())])


def check_package(module: str, install: str) -> None:
    """Check that a package is installed, before any weight is loaded.

    Raises:
        RecipeError: It is not.
    """
    if importlib.util.find_spec(module) is None:
        hint = f"{install}. To check the rest of a recipe: `rlm check RECIPE {_OFF}`"
        raise RecipeError("vLLM is not installed", where="trainer.use_vllm", hint=hint)
