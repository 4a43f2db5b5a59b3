"""States of the random-number generators of Python, NumPy and torch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def rng_state() -> dict[str, Any]:
    """Return the state of every generator of this process."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "devices": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Set what :func:`rng_state` returned; that of the GPUs only if there are as many here."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["devices"] and torch.cuda.device_count() == len(state["devices"]):
        torch.cuda.set_rng_state_all(state["devices"])


@contextmanager
def temporary_rng_state(state: Mapping[str, Any] | None = None) -> Iterator[Callable[[], list[str]]]:
    """Restore the generators on exit; inside, they have `state` if it is not None.

    Yields:
        A function that returns the names of the generators that have drawn numbers since the start of the block.

    >>> with temporary_rng_state() as drawn:
    ...     before, number = drawn(), random.random()
    ...     after = drawn()
    >>> before, after
    ([], ['python'])
    """
    before = rng_state()
    try:
        if state is not None:
            set_rng_state(state)
        start = before if state is None else rng_state()
        yield lambda: _differences(start, rng_state())
    finally:
        set_rng_state(before)


def _differences(x: Mapping[str, Any], y: Mapping[str, Any]) -> list[str]:
    """Return the names of the generators whose states differ, devices that were first used meanwhile aside."""
    equal = {
        "python": x["python"] == y["python"],
        "numpy": all(map(np.array_equal, x["numpy"], y["numpy"])),
        "torch": torch.equal(x["torch"], y["torch"]),
        "devices": all(map(torch.equal, x["devices"], y["devices"])),
    }
    return [name for name, is_equal in equal.items() if not is_equal]
