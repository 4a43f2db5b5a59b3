"""The processes that train together, as accelerate knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelerate import PartialState


def processes() -> PartialState:
    """Which process this is, and of how many.

    Without an accelerator accelerate must be told that CPUs are meant; else each process takes itself for the only one.
    """
    import torch
    from accelerate import PartialState

    return PartialState(cpu=not torch.accelerator.is_available())


def leave() -> None:
    """Says goodbye to the other processes; one that ends without it may be aborted by its own network threads."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
