"""The optimizer step as one batch, for parts whose statistics span micro-batches and ranks.

The step batch holds every completion that an optimizer step trains on, over micro-batches and ranks, in the order of
generation. So a mean, a quantile or a random choice over it does not depend on how the step is split. One exception:
if a step accumulates over several generation batches, the later ones do not exist yet when the first is trained on.
Each generation batch is then a step batch of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

import torch

from rlm_plugins.batch import Batch

Gather = Callable[[torch.Tensor], torch.Tensor]
"""Completions of this rank → completions of all ranks, in rank order."""


def build_step_batch(
    micro_batches: Sequence[Batch],
    positions: Sequence[torch.Tensor],
    gather: Gather = lambda x: x,
    process: int = 0,
) -> tuple[Batch, list[torch.Tensor]]:
    """Concatenate micro-batches over ranks, and return the indices of each micro-batch in the result.

    Args:
        micro_batches: The micro-batches of this rank.
        positions: For each, (B,) sort keys of its completions among those of all ranks; a completion may occur twice.
        gather: Gathers over the ranks, all of which hold the same number of completions.
        process: The rank of this process.

    Returns:
        All completions of all ranks without gradient, and for each micro-batch the indices (B,) of its completions.
    """
    order = gather(torch.cat(list(positions))).argsort(stable=True)
    count = sum(map(len, positions))
    local_rows = order.argsort()[process * count : (process + 1) * count]

    def joined(values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            return {key: joined(_column(values, key)) for key in values[0]}
        if isinstance(values[0], torch.Tensor) and values[0].dim():
            return gather(torch.cat([x.detach() for x in values]))[order]
        return values[0]

    columns = {f.name: list(map(attrgetter(f.name), micro_batches)) for f in fields(Batch)}
    step_batch = Batch(**{name: joined(values) for name, values in columns.items()})
    step_batch.step_batch = step_batch.step_batch_rows = step_batch.log = None  # type: ignore[assignment]
    return step_batch, list(local_rows.split([len(position) for position in positions]))


def _column(values: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    return [value[key] for value in values]


def with_own_step_batch(batch: Batch) -> Batch:
    """Return `batch` as an optimizer step of one micro-batch: it is its own step batch.

    >>> batch = Batch(mask=torch.ones(2, 3, dtype=torch.bool), logp=torch.zeros(2, 3, requires_grad=True))
    >>> with_own_step_batch(batch).step_batch.logp.requires_grad, with_own_step_batch(batch).step_batch_rows.tolist()
    (False, [0, 1])
    """
    step_batch, (rows,) = build_step_batch([batch], [torch.arange(len(batch.mask), device=batch.mask.device)])
    return replace(batch, step_batch=step_batch, step_batch_rows=rows)
