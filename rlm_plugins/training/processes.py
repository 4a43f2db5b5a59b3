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
