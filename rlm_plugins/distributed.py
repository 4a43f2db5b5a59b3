"""Ranks of the current run, as accelerate counts them, and collectives over Python objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from accelerate import PartialState

T = TypeVar("T")


def processes() -> PartialState:
    """Return accelerate's state: rank, number of ranks and device of this process.

    Without an accelerator, accelerate needs `cpu=True`; otherwise each process is taken for the only one.
    """
    import torch
    from accelerate import PartialState

    return PartialState(cpu=not torch.accelerator.is_available())


def rank_slice(count: int) -> slice:
    """Return the slice of `count` items that this rank processes; the slices of all ranks concatenate to all items."""
    state = processes()
    per_rank = -(-count // state.num_processes)
    return slice(per_rank * state.process_index, per_rank * (state.process_index + 1))


def gather_lists(mine: list[T]) -> list[T]:
    """Return the concatenation of every rank's list, in rank order, on all ranks."""
    from accelerate.utils import gather_object

    return gather_object(mine) if processes().num_processes > 1 else mine


def shutdown() -> None:
    """Destroy the process group; a rank that exits without this may be aborted by its own network threads."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
