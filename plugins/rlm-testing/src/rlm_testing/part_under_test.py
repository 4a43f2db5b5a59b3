"""Part under test, and the violation of a law."""

from __future__ import annotations

import io
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from rlm_plugins.batch import SCORING
from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry.part import Bound, Part
from rlm_testing.toy_policy import setup_part


class LawBroken(Exception):
    """Violation of a law.

    Args:
        finding: One sentence.
        example: Data that show it: name → value.
    """

    def __init__(self, finding: str, example: Mapping[str, object] | None = None) -> None:
        self.finding, self.example = finding, dict(example or {})
        super().__init__(finding)


@dataclass(frozen=True)
class Subject:
    """Part with its knobs and examples of its data.

    Args:
        part: The part.
        knobs: Knob → value.
        columns: Column of the data set → strategy or list of values.
    """

    part: Part
    knobs: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)

    def fresh(self) -> Bound:
        """Return the part, bound anew: a class starts in its initial state, after its `setup`."""
        bound = self.part.bind(self.knobs)
        for target in bound.setup_targets if HOOKS[self.part.hook].data == SCORING else ():
            setup_part(target)
        return bound

    def names(self, *data: str) -> bool:
        """Return True if the part takes any of `data`."""
        return any(name in self.part.data for name in data)


def failure(error: BaseException) -> str:
    """Return the message of an exception and where it was raised, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"it raised {type(error).__name__}: {error}{place}"


class Stateful(Protocol):
    """Methods of a stateful part."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Restore a state."""


def stateful(bound: Bound) -> Stateful:
    """Return the instance of a stateful part.

    Raises:
        LawBroken: It lacks a method.
    """
    target: Any = bound.target
    for method in ("state_dict", "load_state_dict"):
        if not callable(getattr(target, method, None)):
            raise LawBroken(f"a stateful part requires the method {method}")
    instance: Stateful = target
    return instance


def through_checkpoint(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state after saving and loading it.

    Raises:
        LawBroken: It contains what `torch.load(weights_only=True)` rejects.
    """
    file = io.BytesIO()
    try:
        torch.save(state, file)
        file.seek(0)
        loaded: dict[str, Any] = torch.load(file, weights_only=True)
    except Exception as error:
        raise LawBroken(f"its state_dict cannot be saved in a checkpoint: {error}") from error
    return loaded
