"""What is learned from at once: the rows of a micro-batch, and where they are read packed the prompts before them."""

from __future__ import annotations

import math
from typing import Any

from rlm_plugins.estimate.fast_paths import longest_packed, padded_because
from rlm_plugins.estimate.meta_model import skeleton
from rlm_plugins.kernels.chunk_sizes import PRODUCTS
from rlm_plugins.stage import Stage


def micro_batch(stage: Stage, args: Any, prompt: int, completion: int) -> tuple[int, int]:
    """Rows, and prompts (0: the rows are padded); all as long as they may get.

    Args:
        stage: With an equation.
        args: The engine's config.
        prompt: Longest prompt, in tokens.
        completion: Longest completion, in tokens.
    """
    from rlm_plugins.packing import fallback_reasons as reasons

    assert stage.equation is not None
    rows, group = args.per_device_train_batch_size, args.num_generations
    most = longest_packed(stage)
    if padded_because(stage, args) is not None or (most is not None and prompt + completion > most):
        return rows, 0
    step = rows * args.gradient_accumulation_steps
    if reasons.at_random(stage.speed, stage.equation, args, packed=True):
        return rows, min(rows, math.ceil(rows * args.steps_per_generation / group))
    if reasons.by_number(stage.speed, stage.equation, args) is None:
        rows = max(1, min(_that_fit(stage, args, prompt, completion), step))
    return rows, math.ceil(rows / group)


def _that_fit(stage: Stage, args: Any, prompt: int, completion: int) -> int:
    """Rows of the greatest length within the budget, a prompt counted once for its group."""
    from rlm_plugins.packing.micro_batches import full

    said, rows = stage.speed.max_tokens_per_micro_batch, args.per_device_train_batch_size
    budget = full(rows, prompt, completion) if said == "auto" else said or joined_tokens(stage)
    spared = prompt - prompt / args.num_generations
    fit = int(float(budget) / (full(1, prompt, completion) - spared))
    return fit if said else max(rows, fit)


def joined_tokens(stage: Stage) -> float:
    """Most tokens of micro-batches that are read together because the model is small."""
    return PRODUCTS / sum(x.numel() for x in skeleton(stage.source.config, stage.lora).parameters())
