"""RNG state around self-checks of a model, and the errors that count as a failed check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

USES_RNG = "the forward pass draws random numbers"
"""Reason for stock passes and stock decoding: fewer calls, or other sequences, would draw other numbers."""

MODEL_ERRORS = (TypeError, ValueError, RuntimeError, AttributeError, LookupError)
"""Errors of a model that does not support a self-check."""


@contextmanager
def preserve_rng(device: torch.device) -> Iterator[Callable[[], bool]]:
    """Restore the RNG state of the CPU and of a GPU on exit.

    Args:
        device: Device of the model.

    Yields:
        A function that returns True if random numbers have been drawn since.
    """
    gpus = [device] if device.type == "cuda" else []

    def states() -> list[torch.Tensor]:
        return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, gpus)]

    with torch.random.fork_rng(gpus):
        initial = states()
        yield lambda: any(not torch.equal(x, y) for x, y in zip(initial, states(), strict=True))
