"""State of parts in a checkpoint, and at the last optimizer step."""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.dispatch import attribute_errors, location
from rlm_plugins.errors import PartError, RlmError
from rlm_plugins.functional.rng_state import rng_state, set_rng_state
from rlm_plugins.registry.part import Bound
from rlm_plugins.trainer.checkpoint import unloadable

PARTS_FILE = "parts.pt"
CRITIC = "critic"


class PartState:
    """State of a part with `state_dict` and `load_state_dict`; errors name the part.

    Args:
        part: A class part.
    """

    def __init__(self, part: Bound) -> None:
        self._part = part

    def state_dict(self) -> Any:
        """Return its state."""
        target: Any = self._part.target
        with attribute_errors(self._part):
            return target.state_dict()

    def check(self) -> None:
        """Check that a checkpoint with its state can be loaded.

        Raises:
            PartError: The state holds objects that checkpoints cannot hold.
        """
        file = io.BytesIO()
        try:
            torch.save(self.state_dict(), file)
            file.seek(0)
            torch.load(file, weights_only=True, map_location="cpu")
        except PartError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            problem = f"its state_dict cannot be kept in a checkpoint ({reason})"
            allowed = "numbers, text, None and tensors, in lists, tuples and dicts"
            raise PartError(problem, where=location(self._part), allowed=allowed) from error

    def load_state_dict(self, state: Any) -> None:
        """Restore a state."""
        target: Any = self._part.target
        with attribute_errors(self._part):
            target.load_state_dict(state)


class PartStates:
    """States that a checkpoint holds beside weights and optimizer.

    Args:
        parts: Every part that may have a state.
        others: Name → object with a state, or None.
    """

    def __init__(self, parts: list[Bound], others: Mapping[str, Any]) -> None:
        stateful = [(number, part) for number, part in enumerate(parts) if hasattr(part.target, "state_dict")]
        self.by_name: dict[str, Any] = {f"{number}:{part.part.full_name}": PartState(part) for number, part in stateful}
        self.by_name |= {name: target for name, target in others.items() if target is not None}
        self._snapshot: StepSnapshot | None = None
        self._epoch: StepSnapshot | None = None

    def check(self) -> None:
        """Check that a checkpoint with the states can be loaded.

        Raises:
            PartError: The state of a part cannot be saved.
        """
        for state in self.by_name.values():
            if isinstance(state, PartState):
                state.check()

    def save(self, folder: Path) -> None:
        """Write the states into a checkpoint."""
        self.check()
        if self.by_name:
            torch.save({name: state.state_dict() for name, state in self.by_name.items()}, folder / PARTS_FILE)

    def load(self, checkpoint: str) -> None:
        """Restore the states of a checkpoint.

        Raises:
            RlmError: The file is damaged, or lacks the critic or a part that is trained.
        """
        if not self.by_name:
            return
        try:
            saved = torch.load(Path(checkpoint) / PARTS_FILE, weights_only=True)
        except Exception as error:
            raise unloadable(error, Path(checkpoint) / PARTS_FILE) from None
        if CRITIC in self.by_name and CRITIC not in saved:
            raise RlmError("the checkpoint has no critic: neither its value head nor its trunk", where=checkpoint)
        for name, state in self.by_name.items():
            if name not in saved:
                raise RlmError(f"the checkpoint has no state of '{name}'", where=str(Path(checkpoint) / PARTS_FILE))
            state.load_state_dict(saved[name])

    def forget_snapshot(self) -> None:
        """Discard the snapshots of an earlier call of `train`."""
        self._snapshot = self._epoch = None

    def begin_epoch(self, step: int) -> None:
        """Keep the RNG at the end of step `step`, before an epoch begins: its data loader draws a number."""
        self._epoch = StepSnapshot(step, {})

    def take_snapshot(self, step: int) -> None:
        """Keep RNG and states at the end of optimizer step `step`, once; weights only change with the step."""
        if self._snapshot is None or self._snapshot.step != step:
            self._snapshot = StepSnapshot(step, self._restorable())

    def _restorable(self) -> dict[str, Any]:
        """Return the states that a failed step restores: not weights, which change with a whole step only."""
        return {n: x for n, x in self.by_name.items() if n != CRITIC and getattr(x, "in_snapshot", True)}

    def snapshot_data(self) -> dict[str, Any]:
        """Return `states` of the parts and `rng` at the start of the generation batch; empty without one."""
        if self._snapshot is None:
            return {}
        return {"states": self._snapshot.states_of_parts(), "rng": self._snapshot.rng}

    def restore_snapshot(self, step: int) -> None:
        """Restore RNG and states to the end of optimizer step `step`, if they have been kept since."""
        for snapshot in (self._snapshot, self._epoch):
            if snapshot is not None and snapshot.step == step:
                snapshot.restore()


class StepSnapshot:
    """RNG and states at the end of an optimizer step, restored if the next one fails.

    Args:
        step: Optimizer steps done.
        states: Name → object with a `state_dict`.
    """

    def __init__(self, step: int, states: Mapping[str, Any]) -> None:
        self.step, self._targets = step, states
        self._states = {name: copy.deepcopy(target.state_dict()) for name, target in states.items()}
        self.rng = rng_state()

    def states_of_parts(self) -> dict[str, Any]:
        """Return the state of each part: no cache and no prompt source."""
        return {name: state for name, state in self._states.items() if ":" in name}

    def restore(self) -> None:
        """Restore everything."""
        set_rng_state(self.rng)
        for name, state in self._states.items():
            self._targets[name].load_state_dict(state)
