"""What a critic adds to the memory of a stage: an adapter, a whole model or nothing, and a value head.

It has AdamW to itself, all of it in float32 but an adapter that PEFT keeps otherwise. Its activations take turns with
the policy's: it learns when those are gone.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from rlm_plugins.estimate.meta_model import half_precision_copies, skeleton, trained_bytes
from rlm_plugins.estimate.transformer import Block
from rlm_plugins.stage import Critic

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from rlm_plugins.estimate.memory import Load

FLOAT = 4
"""Bytes of a float32."""
MOMENTS = 2
"""That AdamW keeps, in the type of the weights."""


def critic_memory(config: PretrainedConfig, critic: Critic | None, load: Load) -> tuple[dict[str, int], dict[str, int]]:
    """What it holds from the first step to the last, and while it learns from a micro-batch; by what it is for.

    A value head on the policy's own passes holds nothing of its own while it learns.
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
    always = {
        "critic's weights": weights,
        "critic's gradients": weights,
        "critic's optimiser state": MOMENTS * weights,
    }
    return always, {} if model is None else _valuing(model, Block.of(model, config, rank), load)


def _valuing(model: Any, block: Block, load: Load) -> dict[str, int]:
    last = (
        {"a layer read again": block.layer(load)}
        if load.checkpointing
        else {"its hidden states": block.hidden_states(load.tokens, load.half)}
    )
    copies = half_precision_copies(model) if load.half else 0
    return {"critic's activations": block.activations(load), **last, "half-precision weights": copies}


def _in_float32(config: PretrainedConfig) -> PretrainedConfig:
    """As a copy that is trained is held, whatever it was copied from."""
    found = copy.deepcopy(config)
    found.dtype = "float32"
    return found
