"""States of the random-number generators of Python, NumPy and torch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
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
        "devices": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Set what :func:`rng_state` returned; that of the GPUs only if there are as many here."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["devices"] and torch.cuda.device_count() == len(state["devices"]):
        torch.cuda.set_rng_state_all(state["devices"])


@contextmanager
def temporary_rng_state(state: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Restore the generators on exit; inside, they have `state` if it is not None."""
    before = rng_state()
    try:
        if state is not None:
            set_rng_state(state)
        yield
    finally:
        set_rng_state(before)
