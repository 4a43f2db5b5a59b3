"""Writing of capsules during a run: of every N-th optimizer step, and of the step that a fault ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rlm_plugins.capsule import Capsule, write_capsule
from rlm_plugins.capsule.storage import FOLDER

_LOG = logging.getLogger(__name__)
Document = Callable[[], tuple[str, Sequence[Path]]]
"""Called for the stage as a recipe in YAML without paths of this machine, and its single-file plugins."""


class CapsuleWriter:
    """Writer of the capsules of one trainer.

    Args:
        trainer: A transformers `Trainer`; one with a `StepRecorder` supplies whole steps, others their inputs.
        stage: Name of the stage.
        folder: Folder of the stage.
        document: Returns the recipe of the capsules; called once.
    """

    def __init__(self, trainer: Any, stage: str, folder: Path, document: Document) -> None:
        self._trainer, self._stage, self._folder, self._document = trainer, stage, folder / FOLDER, cache(document)
        self._recorder = trainer.components.recorder if hasattr(trainer, "components") else None
        self._inputs: list[Any] = []

    def add_inputs(self, inputs: Any) -> None:
        """Record the inputs of a micro-batch of a trainer with a loss of its own."""
        if self._recorder is None:
            self._inputs.append(inputs)

    def end_step(self, grad_norm: Any = None) -> None:
        """Write the optimizer step if it is due, on all processes, before it counts as done."""
        if self._recorder is not None:
            if self._recorder.is_due:
                self._recorder.grad_norm = grad_norm
                self._store(self._recorder.capsule, main_only=True)
            self._recorder.end_step()
        self._inputs = []

    def save_fault(self, error: BaseException) -> None:
        """Write the step that an error ends."""
        where = getattr(error, "where", "")
        fault = {"kind": type(error).__name__, "problem": getattr(error, "problem", str(error)), "where": where}
        folder = self._store(lambda: self._fault_capsule(fault), main_only=getattr(error, "everywhere", False))
        if folder is not None:
            _LOG.warning("the step is stored: `rlm replay %s`", folder)

    def _fault_capsule(self, fault: Mapping[str, str]) -> Capsule:
        if self._recorder is not None:
            return self._recorder.capsule(fault)
        updates = [{"micro_batches": self._inputs}]
        return Capsule(self._trainer.state.global_step + 1, self._stage, updates=updates, fault=dict(fault))

    def _store(self, build: Callable[[], Capsule], *, main_only: bool) -> Path | None:
        """Write a capsule and return its path; None if that fails, which is logged and ends no run."""
        rank, is_main = self._trainer.accelerator.process_index, self._trainer.args.should_save
        try:
            capsule = build()
            if main_only and not is_main:
                return None
            capsule.stage = self._stage
            name = f"step-{capsule.step}" + ("" if is_main else f"-process-{rank}")
            return write_capsule(self._folder / name, capsule, *self._document())
        except Exception as error:
            _LOG.warning("the step could not be stored in %s: %s", self._folder, error)
            return None
