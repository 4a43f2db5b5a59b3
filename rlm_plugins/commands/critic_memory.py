"""What a critic adds to the memory of a stage: an adapter, a whole model or nothing, and a value head.

It has AdamW to itself, all of it in float32 but an adapter that PEFT keeps otherwise. Its activations take turns with
the policy's: it learns when those are gone.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from rlm_plugins.commands.block import Block
from rlm_plugins.commands.shapes import half_precision_copies, skeleton, trained_bytes
from rlm_plugins.stage import Critic

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

    from rlm_plugins.commands.estimate import Load

FLOAT = 4
"""Bytes of a float32."""
MOMENTS = 2
"""That AdamW keeps, in the type of the weights."""


def always(config: PretrainedConfig, critic: Critic | None) -> dict[str, int]:
    """What it holds from the first step to the last."""
    if critic is None:
        return {}
    weights = FLOAT * (_hidden(config) + 1)
    if critic.kind == "shared":
        weights += trained_bytes(skeleton(config, critic.lora or {}))
    elif critic.kind == "separate":
        weights += trained_bytes(_trunk(skeleton(_in_float32(config), None)))
    return {
        "critic's weights": weights,
        "critic's gradients": weights,
        "critic's optimiser state": MOMENTS * weights,
    }


def valuing(config: PretrainedConfig, critic: Critic | None, load: Load) -> dict[str, int]:
    """What it holds while it learns from a micro-batch, where it has a trunk; a head hears the policy's passes."""
    if critic is None or critic.kind == "head":
        return {}
    if critic.kind == "shared":
        model, rank = skeleton(config, critic.lora or {}), (critic.lora or {}).get("r", 8)
    else:
        config = _in_float32(config)
        model, rank = _trunk(skeleton(config, None)), 0
    block = Block.of(model, config, rank)
    tokens = load.micro_rows * (load.prompt + load.completion)
    return {
        "critic's activations": block.activations(load),
        **(
            {"a layer read again": block.layer(load)}
            if load.checkpointing
            else {"its hidden states": block.hidden_states(tokens, load.half)}
        ),
        "half-precision weights": half_precision_copies(model) if load.half else 0,
    }


def _trunk(model: Any) -> torch.nn.Module:
    """A model without its language head."""
    return model.base_model  # type: ignore[no-any-return]


def _in_float32(config: PretrainedConfig) -> PretrainedConfig:
    """As a copy that is trained is held, whatever it was copied from."""
    found = copy.deepcopy(config)
    found.dtype = "float32"
    return found


def _hidden(config: PretrainedConfig) -> int:
    return int(config.get_text_config().hidden_size)
