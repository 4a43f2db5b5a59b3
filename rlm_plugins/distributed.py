"""The processes that train together, as accelerate knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from accelerate import PartialState

T = TypeVar("T")


def processes() -> PartialState:
    """Which process this is, and of how many.

    Without an accelerator accelerate must be told that CPUs are meant; else each process takes itself for the only one.
    """
    import torch
    from accelerate import PartialState

    return PartialState(cpu=not torch.accelerator.is_available())


def rank_slice(count: int) -> slice:
    """Which of `count` pieces of work are this process's; laid end to end the shares are all of them."""
    state = processes()
    most = -(-count // state.num_processes)
    return slice(most * state.process_index, most * (state.process_index + 1))


def gather_lists(mine: list[T]) -> list[T]:
    """What every process has done of its share, in order, on all of them."""
    from accelerate.utils import gather_object

    return gather_object(mine) if processes().num_processes > 1 else mine


def shutdown() -> None:
    """Says goodbye to the other processes; one that ends without it may be aborted by its own network threads."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
