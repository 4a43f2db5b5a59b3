"""The whole optimiser step as one batch, for parts whose statistics no micro-batch can tell.

The window holds every row that an optimiser step trains on, over micro-batches and processes, in the order in which
the rows were written. So a mean, a quantile or a draw over it is the same however the step is split. One exception:
where a step accumulates over several generations, the later ones are not written yet when the first is trained on;
then each generation is a window of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from rlm_plugins.batch import Batch

Gather = Callable[[torch.Tensor], torch.Tensor]
"""Rows of this process → rows of all processes, in the order of the processes."""


def window_of(
    pieces: Sequence[Batch], places: Sequence[torch.Tensor], gather: Gather = lambda x: x, process: int = 0
) -> tuple[Batch, list[torch.Tensor]]:
    """Joins micro-batches, and says where to find them again.

    Args:
        pieces: The micro-batches of this process.
        places: For each, (B,) numbers that order its rows among those of all processes; a row may come twice.
        gather: Over the processes, of which each has as many rows.
        process: Which of them this is.

    Returns:
        Every row of every process without gradient, and for each piece the numbers (B,) of its rows in it.
    """
    order = gather(torch.cat(list(places))).argsort(stable=True)
    count = sum(map(len, places))
    mine = order.argsort()[process * count : (process + 1) * count]

    def joined(values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            return {key: joined([value[key] for value in values]) for key in values[0]}
        if isinstance(values[0], torch.Tensor) and values[0].dim():
            return gather(torch.cat([x.detach() for x in values]))[order]
        return values[0]

    whole = Batch(**{f.name: joined([getattr(piece, f.name) for piece in pieces]) for f in fields(Batch)})
    whole.step_batch = whole.step_batch_rows = whole.log = None  # type: ignore[assignment]
    return whole, list(mine.split([len(place) for place in places]))


def alone(batch: Batch) -> Batch:
    """The batch as an optimiser step of its own: it is its window.

    >>> batch = Batch(mask=torch.ones(2, 3, dtype=torch.bool), logp=torch.zeros(2, 3, requires_grad=True))
    >>> alone(batch).step_batch.logp.requires_grad, alone(batch).step_batch_rows.tolist()
    (False, [0, 1])
    """
    window, (rows,) = window_of([batch], [torch.arange(len(batch.mask), device=batch.mask.device)])
    return replace(batch, step_batch=window, step_batch_rows=rows)
