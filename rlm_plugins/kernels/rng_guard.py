"""What trials of a model share: random numbers that they must not take, and errors that are an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

DRAWS = "it draws random numbers while it reads"
"""Why a model is read and written with as ever: in fewer calls, or for other rows, the numbers would be others."""

FAILS = (TypeError, ValueError, RuntimeError, AttributeError, LookupError)
"""What a model raises that cannot be read so."""


@contextmanager
def restored(device: torch.device) -> Iterator[Callable[[], bool]]:
    """Afterwards the generators of the CPU and of a GPU are as they were; yields who says whether any was drawn from.

    Args:
        device: Where the model is.
    """
    gpus = [device] if device.type == "cuda" else []

    def states() -> list[torch.Tensor]:
        return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, gpus)]

    with torch.random.fork_rng(gpus):
        before = states()
        yield lambda: any(not torch.equal(one, other) for one, other in zip(before, states(), strict=True))
