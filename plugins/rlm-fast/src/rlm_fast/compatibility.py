"""Compatibility of the decoding loop with a call of `generate` and with a model; unknown processors fall back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers.distributed.fsdp import is_fsdp_managed_module
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from rlm_fast.kv_cache import has_plain_layers
from rlm_plugins.models.adapters import IMAGES, causal_model, config_has_dropout, has_vision, position_limit

PER_SEQUENCE = (
    "MinLengthLogitsProcessor",
    "MinNewTokensLengthLogitsProcessor",
    "TemperatureLogitsWarper",
    "RepetitionPenaltyLogitsProcessor",
    "TopPLogitsWarper",
    "TopKLogitsWarper",
    "MinPLogitsWarper",
    "TypicalLogitsWarper",
    "EpsilonLogitsWarper",
    "EtaLogitsWarper",
    "NoRepeatNGramLogitsProcessor",
    "SequenceBiasLogitsProcessor",
    "NoBadWordsLogitsProcessor",
    "ForcedEOSTokenLogitsProcessor",
    "InfNanRemoveLogitsProcessor",
    "LogitNormalization",
    "SuppressTokensLogitsProcessor",
    "SuppressTokensAtBeginLogitsProcessor",
    "MaxLengthCriteria",
    "EosTokenCriteria",
    "StopStringCriteria",
)
"""Logits processors and stopping criteria of transformers that treat each sequence independently of the batch."""
SEQUENCE_STATE = {"prompt_ignore_length"}
"""Attributes of these processors that hold one entry per sequence."""
MODEL_KWARGS = ("attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep")
"""Supported inputs of a model besides token ids."""


def why_unsupported_call(
    model: Any, processors: Any, criteria: Any, config: Any, model_kwargs: Mapping[str, Any]
) -> str | None:
    """Return why a prepared call of `generate` is unsupported, or None.

    Args:
        model: The transformers model.
        processors: Logits processors.
        criteria: Stopping criteria.
        config: `GenerationConfig` of transformers.
        model_kwargs: Inputs of the model besides token ids.
    """
    mode = config.get_generation_mode()
    if mode not in ("sample", "greedy_search"):
        return f"{mode.replace('_', ' ')} is unsupported"
    unknown = [type(x).__name__ for x in (*processors, *criteria) if not _is_per_sequence(x)]
    if unknown:
        return f"{unknown[0]} is unsupported"
    if config.return_dict_in_generate or config.prefill_chunk_size is not None:
        return "`return_dict_in_generate` and `prefill_chunk_size` are unsupported"
    inputs = [name for name, x in model_kwargs.items() if name not in MODEL_KWARGS and x is not None]
    if inputs:
        return IMAGES if has_vision(model) else f"the model input `{inputs[0]}` is unsupported"
    if not model_kwargs.get("use_cache") or not has_plain_layers(model_kwargs.get("past_key_values")):
        return "not every layer caches keys and values of all tokens"
    limit = position_limit(model.config.get_text_config())
    if limit is not None and config.max_length > limit:
        return f"sequences may exceed {limit} tokens, beyond which positions are encoded differently"
    return None


def _is_per_sequence(x: Any) -> bool:
    """Return True if a processor or criterion treats each sequence independently."""
    return type(x).__module__.startswith("transformers.generation.") and type(x).__name__ in PER_SEQUENCE


def why_unsupported_model(model: Any) -> str | None:
    """Return why a model is unsupported, or None.

    Args:
        model: A causal language model, with or without adapters.
    """
    base = causal_model(model)
    dropout = [module for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    is_on = any(x.p > 0 and x.training for x in dropout)
    if is_on or (base.training and config_has_dropout(base.config.get_text_config())):
        return "dropout is on, and its masks depend on the batch"
    if is_deepspeed_zero3_enabled() or is_fsdp_managed_module(base):
        return "the model is sharded, and all processes must run each forward pass together"
    adapters = getattr(model, "peft_config", None) or {}
    if any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values()):
        return "the adapter adds virtual tokens to each prompt"
    return None
