"""The memory of a part, on its way into a checkpoint and back."""

from __future__ import annotations

import io
from typing import Any

import torch

from rlm_plugins.dispatch import attribute_errors, location
from rlm_plugins.errors import PartError
from rlm_plugins.registry.part import Bound


class Memory:
    """What a part with `state_dict` and `load_state_dict` remembers; whatever goes wrong carries its name.

    Args:
        part: A class part.
    """

    def __init__(self, part: Bound) -> None:
        self._part = part

    def state_dict(self) -> Any:
        """Its state."""
        target: Any = self._part.target
        with attribute_errors(self._part):
            return target.state_dict()

    def check(self) -> None:
        """Whether a checkpoint that holds its state could be read again.

        Raises:
            PartError: The state is made of something else than checkpoints are.
        """
        kept = io.BytesIO()
        try:
            torch.save(self.state_dict(), kept)
            kept.seek(0)
            torch.load(kept, weights_only=True, map_location="cpu")
        except PartError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            problem = f"its state_dict cannot be kept in a checkpoint ({reason})"
            allowed = "numbers, text, None and tensors, in lists, tuples and dicts"
            raise PartError(problem, where=location(self._part), allowed=allowed) from error

    def load_state_dict(self, state: Any) -> None:
        """Hands a state back to the part."""
        target: Any = self._part.target
        with attribute_errors(self._part):
            target.load_state_dict(state)
