"""The state of chance and memory at the end of an optimiser step, to come back to when the next one fails."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


class Boundary:
    """What a checkpoint at this step holds beside weights and optimiser.

    Args:
        step: Optimiser steps done.
        memories: Name → what has a `state_dict`.
    """

    def __init__(self, step: int, memories: Mapping[str, Any]) -> None:
        self.step = step
        self._memories = {name: copy.deepcopy(memory.state_dict()) for name, memory in memories.items()}
        self._python, self._numpy, self._torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
        self._devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def restore(self, memories: Mapping[str, Any]) -> None:
        """Puts everything back."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        if self._devices:
            torch.cuda.set_rng_state_all(self._devices)
        for name, memory in self._memories.items():
            memories[name].load_state_dict(memory)
