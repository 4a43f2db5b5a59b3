"""Micro-batches grouped by prompt, zero-advantage completions last.

TRL shuffles the completions of a generation. The sum over an optimizer step does not depend on their order. But only
completions in the same micro-batch can share a prompt, and a micro-batch without gradient costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import torch

from rlm_plugins.equation.equation import Equation
from rlm_plugins.rollout.dynamic_sampling import has_batch_dim

MicroBatch = dict[str, Any]


def group_by_prompt(micro_batches: Sequence[MicroBatch], step_size: int) -> list[MicroBatch]:
    """Reorder the completions within each optimizer step by prompt; micro-batches keep their sizes.

    Args:
        micro_batches: All of a generation, equally large, with `group` and `advantages`. Entries that are no tensor
            with one element per completion stay where they are.
        step_size: Micro-batches of an optimizer step; a generation holds a whole number of steps.
    """
    grouped: list[MicroBatch] = []
    for first in range(0, len(micro_batches), step_size):
        step = micro_batches[first : first + step_size]
        chunks = {name: x.chunk(len(step)) for name, x in sorted_by_prompt(step).items()}
        for i, micro_batch in enumerate(step):
            grouped.append({**micro_batch, **{name: x[i] for name, x in chunks.items()}})
    return grouped


def sorted_by_prompt(step: Sequence[MicroBatch]) -> MicroBatch:
    """Return the completions of an optimizer step, sorted by prompt, those with zero advantage last."""
    names = [name for name, x in step[0].items() if has_batch_dim(x)]
    joined = {name: torch.cat(list(map(itemgetter(name), step))) for name in names}
    without_advantage = ~has_advantage(joined["advantages"])
    # The offset sorts completions without advantage behind all groups; stable keeps their order.
    order = torch.argsort(joined["group"] + without_advantage * (joined["group"].max() + 1), stable=True)
    return {name: x[order] for name, x in joined.items()}


def sums_over_step(equation: Equation) -> bool:
    """Return True if the loss is a sum over the optimizer step, not a mean over micro-batches of their means."""
    return not equation.requires("num_micro_batches")


def has_advantage(advantages: torch.Tensor) -> torch.Tensor:
    """Return (B,) True for completions with a nonzero advantage, from advantages (B, 1) or (B, T)."""
    return (advantages != 0).any(1)
