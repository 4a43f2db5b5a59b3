"""The part on the bench: how it is called, and what a law says when it is broken."""

from __future__ import annotations

import io
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from rlm_plugins.batch import SCORING
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.testing.toy_policy import introduce


class LawBroken(Exception):
    """A law does not hold.

    Args:
        found: What was seen, in a sentence.
        example: The data it was seen on: name → value.
    """

    def __init__(self, found: str, example: Mapping[str, object] | None = None) -> None:
        self.found, self.example = found, dict(example or {})
        super().__init__(found)


@dataclass(frozen=True)
class Subject:
    """A part with its knobs, and what the kit was told about its data.

    Args:
        part: The part.
        knobs: Knob → value.
        columns: Column of the data set → strategy or list of its values.
    """

    part: Part
    knobs: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)

    def fresh(self) -> Bound:
        """The part, bound anew: a class starts without memories, and has met a policy where it wants to."""
        bound = self.part.bind(self.knobs)
        for guest in bound.setup_targets if HOOKS[self.part.hook].data == SCORING else ():
            introduce(guest)
        return bound

    def names(self, *data: str) -> bool:
        """Whether the part asks for any of `data`."""
        return any(name in (*self.part.needs, *self.part.welcomes) for name in data)


def failure(error: BaseException) -> str:
    """What an exception says and where it was raised, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"it raised {type(error).__name__}: {error}{place}"


class Memory(Protocol):
    """What a part with memory offers."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> object: ...


def remembering(bound: Bound) -> Memory:
    """The instance behind a class part.

    Raises:
        LawBroken: It cannot hand its memory over.
    """
    target: Any = bound.target
    for method in ("state_dict", "load_state_dict"):
        if not callable(getattr(target, method, None)):
            raise LawBroken(f"a part with memory needs the method {method}")
    memory: Memory = target
    return memory


def saved(state: dict[str, Any]) -> dict[str, Any]:
    """What comes back of a memory from a checkpoint.

    Raises:
        LawBroken: It holds something a checkpoint cannot hold safely.
    """
    file = io.BytesIO()
    try:
        torch.save(state, file)
        file.seek(0)
        found: dict[str, Any] = torch.load(file, weights_only=True)
    except Exception as error:
        raise LawBroken(f"a checkpoint cannot hold its state_dict: {error}") from error
    return found
