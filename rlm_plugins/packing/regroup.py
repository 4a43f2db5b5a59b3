"""The rows of an optimiser step, put into its micro-batches group by group, those that teach nothing last.

TRL deals rows out at random. The sum over an optimiser step does not care, but a prompt is only shared by rows that
are read together, and a micro-batch in which nothing teaches costs nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlm_plugins.rollout.dynamic_sampling import has_batch_dim
from rlm_plugins.step import Equation

MicroBatch = dict[str, Any]


def regroup(micro_batches: Sequence[MicroBatch], window: int) -> list[MicroBatch]:
    """The same rows, reordered within each optimiser step; every micro-batch has as many as before.

    Args:
        micro_batches: Of one generation, equally large, with the rows' `group` and `advantages`. What is no tensor
            with an entry per row stays in its place.
        window: Micro-batches of an optimiser step, of which the generation holds a whole number.
    """
    found: list[MicroBatch] = []
    for first in range(0, len(micro_batches), window):
        step = micro_batches[first : first + window]
        pieces = {name: x.chunk(len(step)) for name, x in sorted_rows(step).items()}
        found += [{**piece, **{name: parts[i] for name, parts in pieces.items()}} for i, piece in enumerate(step)]
    return found


def sorted_rows(step: Sequence[MicroBatch]) -> MicroBatch:
    """All rows of an optimiser step, group by group, those that teach nothing last."""
    rows = {name: torch.cat([piece[name] for piece in step]) for name, x in step[0].items() if has_batch_dim(x)}
    dead = ~teaches(rows["advantages"])
    order = torch.argsort(rows["group"] + dead * (rows["group"].max() + 1), stable=True)
    return {name: x[order] for name, x in rows.items()}


def counts_by_step(equation: Equation) -> bool:
    """Whether the loss is a sum over the optimiser step, and no mean of means of its micro-batches."""
    return not equation.needs("num_micro_batches")


def counts_by_row(equation: Equation) -> bool:
    """Whether a row's loss is its own, and no statistic over the micro-batches of the step."""
    return not (equation.needs("step_batch") or equation.needs("step_batch_rows"))


def teaches(advantages: torch.Tensor) -> torch.Tensor:
    """(B,) whether a row has any advantage, from (B, 1) or (B, T)."""
    return (advantages != 0).any(1)
