"""Memory of a critic: an adapter, a whole model or nothing, and a value head.

A critic has AdamW states of its own, all in float32 except adapters that PEFT keeps in another type. Its activations
and those of the policy are never in memory together: the critic is updated after the policy.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from rlm_fast.load import Load
from rlm_fast.transformer import Transformer
from rlm_plugins.models.scratch import half_precision_copies, skeleton, trained_bytes
from rlm_plugins.stage import Critic

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FLOAT = 4
"""Bytes of a float32."""
MOMENTS = 2
"""Moments of AdamW, in the type of the weights."""


def critic_memory(config: PretrainedConfig, critic: Critic | None, load: Load) -> tuple[dict[str, int], dict[str, int]]:
    """Return the bytes a critic holds during the whole run and during its update, by purpose.

    A value head on the policy's own passes needs nothing of its own during the update.

    Args:
        config: Config of the policy.
        critic: `critic:` of the stage; None: no critic.
        load: Sizes of the batches.
    """
    if critic is None:
        return {}, {}
    model: Any = None
    rank = 0
    if critic.kind == "shared":
        model, rank = skeleton(config, critic.lora or {}, "critic.lora"), (critic.lora or {}).get("r", 8)
    elif critic.kind == "separate":
        config = _in_float32(config)
        model = skeleton(config, None).base_model
    weights = FLOAT * (int(config.get_text_config().hidden_size) + 1)
    if model is not None:
        weights += trained_bytes(model)
    during_run = {
        "critic weights": weights,
        "critic gradients": weights,
        "critic optimizer state": MOMENTS * weights,
    }
    return during_run, {} if model is None else _update(model, Transformer.of_model(model, config, rank), load)


def _update(model: Any, transformer: Transformer, load: Load) -> dict[str, int]:
    """Return the bytes of an update of the critic."""
    if load.checkpointing:
        last = {"recomputed layer": transformer.layer(load)}
    else:
        last = {"hidden states": transformer.hidden_states(load.tokens, load.half)}
    copies = half_precision_copies(model) if load.half else 0
    return {"critic activations": transformer.activations(load), **last, "half-precision weights": copies}


def _in_float32(config: PretrainedConfig) -> PretrainedConfig:
    """Return a copy of a config in float32, the type of a trained copy of any model."""
    config = copy.deepcopy(config)
    config.dtype = "float32"
    return config
