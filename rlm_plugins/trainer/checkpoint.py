"""Checkpoints that are whole or absent, taken where a run can be continued exactly."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

_NAME = re.compile(r"checkpoint-(\d+)")


class DurableCheckpoints:
    """Mixin in front of a transformers `Trainer`: a checkpoint is written aside and renamed when it is complete.

    A process killed while it saves leaves the last checkpoint untouched; stock transformers leaves a half one that
    the next resume trips over.
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
        """Saves what was learned up to the last optimiser step, where that is in no checkpoint yet."""
        if self.state.global_step > latest_step(Path(self.args.output_dir)):  # type: ignore[attr-defined]
            self._save_checkpoint(self.model)  # type: ignore[attr-defined]

    def _write_extras(self, folder: Path) -> None:
        """What else belongs into a checkpoint; called on the main process."""


def _publish(aside: Path, run: Path, keep: int | None) -> None:
    """Moves finished checkpoints to where a resume looks for them, and drops the oldest beyond `keep`."""
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
    """Complete checkpoints in `folder`, oldest first."""
    found = [p for p in folder.glob("checkpoint-*") if _NAME.fullmatch(p.name)]
    return sorted(found, key=lambda p: int(p.name.split("-")[1]))


def latest_step(folder: Path) -> int:
    """The step of the last complete checkpoint in `folder`; -1 without one."""
    found = checkpoints(folder)
    return int(found[-1].name.split("-")[1]) if found else -1


class SaveWhenBufferIsEmpty(TrainerCallback):  # type: ignore[misc]
    """Puts a save off until every buffered completion has been trained on: only there a resume is exact.

    Args:
        micro_steps: Micro-batches that one generation serves (`steps_per_generation` × `num_iterations`).
        accumulation: Micro-batches per optimiser step.
    """

    def __init__(self, micro_steps: int, accumulation: int) -> None:
        self._micro_steps, self._accumulation = micro_steps, accumulation
        self._due = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._due |= control.should_save
        empty = state.global_step * self._accumulation % self._micro_steps == 0
        control.should_save = self._due and empty
        self._due &= not empty
