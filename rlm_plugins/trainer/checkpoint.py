"""Checkpoints that are complete or absent, saved where a run can be resumed exactly."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

_NAME = re.compile(r"checkpoint-(\d+)")


class DurableCheckpoints:
    """Mixin for a transformers `Trainer`: a checkpoint is written to another folder and renamed when it is complete.

    A process killed while it saves leaves the last checkpoint untouched. Plain transformers leaves an incomplete one,
    at which the next resume fails.
    """

    _aside: Path | None = None

    def _get_output_dir(self, trial: Any = None) -> str:
        return str(self._aside) if self._aside else super()._get_output_dir(trial=trial)  # type: ignore[misc]

    def _save_checkpoint(self, model: Any, trial: Any = None) -> None:
        run = Path(super()._get_output_dir(trial=trial))  # type: ignore[misc]
        self._aside = run / ".saving"
        if self.args.should_save:  # type: ignore[attr-defined]
            shutil.rmtree(self._aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()  # type: ignore[attr-defined]
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
            if self.args.should_save:  # type: ignore[attr-defined]
                self._write_extras(self._aside / f"checkpoint-{self.state.global_step}")  # type: ignore[attr-defined]
            self.accelerator.wait_for_everyone()  # type: ignore[attr-defined]
            if self.args.should_save:  # type: ignore[attr-defined]
                _publish(self._aside, run, keep=self.args.save_total_limit)  # type: ignore[attr-defined]
            self.accelerator.wait_for_everyone()  # type: ignore[attr-defined]
        finally:
            self._aside = None

    def keep(self) -> None:
        """Save the last optimizer step, unless a checkpoint of it exists."""
        if self.state.global_step > latest_step(Path(self.args.output_dir)):  # type: ignore[attr-defined]
            self._save_checkpoint(self.model)  # type: ignore[attr-defined]

    def _write_extras(self, folder: Path) -> None:
        """Write further files into a checkpoint; called on the main process."""


def _publish(aside: Path, run: Path, keep: int | None) -> None:
    """Move complete checkpoints into the run, and delete the oldest beyond `keep`."""
    for folder in aside.iterdir():
        for file in (f for f in folder.rglob("*") if f.is_file()):
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        shutil.rmtree(run / folder.name, ignore_errors=True)
        folder.rename(run / folder.name)
    shutil.rmtree(aside)
    for old in checkpoints(run)[: -keep if keep else 0]:
        shutil.rmtree(old)


def checkpoints(folder: Path) -> list[Path]:
    """Return complete checkpoints in `folder`, oldest first."""
    folders = [p for p in folder.glob("checkpoint-*") if _NAME.fullmatch(p.name)]
    return sorted(folders, key=lambda p: int(p.name.split("-")[1]))


def latest_step(folder: Path) -> int:
    """Return the step of the last complete checkpoint in `folder`; -1 without one."""
    folders = checkpoints(folder)
    return int(folders[-1].name.split("-")[1]) if folders else -1


class SaveWhenBufferIsEmpty(TrainerCallback):  # type: ignore[misc]
    """Delays a save until every buffered completion has been trained on; only then a resume is exact.

    Args:
        micro_steps: Micro-batches that one generation batch serves (`steps_per_generation` × `num_iterations`).
        accumulation: Micro-batches per optimizer step.
    """

    def __init__(self, micro_steps: int, accumulation: int) -> None:
        self._micro_steps, self._accumulation = micro_steps, accumulation
        self._due = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save if a save is due and the buffer is empty."""
        self._due |= control.should_save
        empty = state.global_step * self._accumulation % self._micro_steps == 0
        control.should_save = self._due and empty
        self._due &= not empty
