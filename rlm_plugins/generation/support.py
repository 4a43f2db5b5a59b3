"""Whether the decoding loop does what a call of `generate` asks for; what is not known to be row by row is not done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers.distributed.fsdp import is_fsdp_managed_module
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from rlm_plugins.generation.kv_cache import has_plain_layers
from rlm_plugins.packing.forward import causal_model
from rlm_plugins.packing.position_limits import reach
from rlm_plugins.packing.support import IMAGES, drops, sees_images

ROW_BY_ROW = (
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
"""Processors and criteria of transformers that treat a row the same whoever stands beside it."""
BY_ROW = {"prompt_ignore_length"}
"""What some of them remember of each row."""
INPUTS = ("attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep")
"""What a model may be given beside token ids."""


def why_not(model: Any, processors: Any, criteria: Any, config: Any, given: Mapping[str, Any]) -> str | None:
    """What about a prepared call is not done, in words; None: nothing.

    Args:
        model: The transformers model.
        processors: Of the logits.
        criteria: For stopping.
        config: transformers' GenerationConfig.
        given: What the model is called with.
    """
    mode = config.get_generation_mode()
    if mode not in ("sample", "greedy_search"):
        return f"it does no {mode.replace('_', ' ')}"
    odd = [type(x).__name__ for x in (*processors, *criteria) if not _is_row_by_row(x)]
    if odd:
        return f"it does not know {odd[0]}"
    if config.return_dict_in_generate or config.prefill_chunk_size is not None:
        return "it returns token ids, and reads a prompt in one piece"
    unknown = [name for name, x in given.items() if name not in INPUTS and x is not None]
    if unknown:
        return IMAGES if sees_images(model) else f"it does not know the input '{unknown[0]}'"
    if not given.get("use_cache") or not has_plain_layers(given.get("past_key_values")):
        return "not every layer keeps keys and values of all tokens"
    most = reach(model.config.get_text_config())
    if most is not None and config.max_length > most:
        return f"rows may be longer than {most} tokens, beyond which the model reads otherwise"
    return None


def _is_row_by_row(x: Any) -> bool:
    return type(x).__module__.startswith("transformers.generation.") and type(x).__name__ in ROW_BY_ROW


def why_not_model(model: Any) -> str | None:
    """What about a model is not done; None: nothing.

    Args:
        model: A causal language model, with or without adapters.
    """
    base = causal_model(model)
    dropout = [module for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    if any(x.p > 0 and x.training for x in dropout) or (base.training and drops(base.config.get_text_config())):
        return "dropout is on, and what it hits depends on who stands beside a row"
    if is_deepspeed_zero3_enabled() or is_fsdp_managed_module(base):
        return "the weights are spread over processes, which must all read at the same time"
    adapters = getattr(model, "peft_config", None) or {}
    if any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values()):
        return "its adapter adds virtual tokens to each prompt"
    return None
