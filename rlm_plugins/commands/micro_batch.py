"""What is learned from at once: the rows of a micro-batch, and where they are read packed the prompts before them."""

from __future__ import annotations

import math
from typing import Any

from rlm_plugins.commands.shortcuts import deals, padded_because, weighs
from rlm_plugins.stage import Stage


def micro_batch(stage: Stage, args: Any, prompt: int, completion: int) -> tuple[int, int]:
    """Rows, and prompts (0: the rows are padded); all as long as they may get.

    Args:
        stage: With an equation.
        args: The engine's config.
        prompt: Longest prompt, in tokens.
        completion: Longest completion, in tokens.
    """
    rows, group = args.per_device_train_batch_size, args.num_generations
    if padded_because(stage, args) is not None:
        return rows, 0
    step = rows * args.gradient_accumulation_steps
    if not deals(stage, args):
        return rows, min(rows, math.ceil(rows * args.steps_per_generation / group))
    if weighs(stage, args):
        rows = max(1, min(_that_fit(stage, args, prompt, completion), step))
    return rows, math.ceil(rows / group)


def _that_fit(stage: Stage, args: Any, prompt: int, completion: int) -> int:
    """Rows of the greatest length within the budget, as `speed/portions.py` weighs them."""
    from rlm_plugins.speed.portions import KEYS

    said, tokens = stage.speed.token_budget, completion - 1
    budget = args.per_device_train_batch_size * (prompt + completion) if said == "auto" else int(said or 0)
    return int(budget / (prompt / args.num_generations + tokens + (prompt + 2 * tokens) / KEYS))
