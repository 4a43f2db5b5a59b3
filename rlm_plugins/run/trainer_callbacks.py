"""Callbacks and observers of every run: its logs of metrics and samples, and its end after a signal."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import select
from rlm_plugins.distributed import gather_lists
from rlm_plugins.durable.stop_signals import Interrupted, StopSignals
from rlm_plugins.run.folder import Run
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.observer import StepObserver


class SampleLog(StepObserver):
    """Logs the scored completions of this process."""

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage
        self._components: Any = None

    def attach(self, trainer: Any) -> None:
        """Store the collaborators of the trainer; one with a loss of its own has none, and scores nothing."""
        self._components = getattr(trainer, "components", None)

    def scored(self, batch: Batch, turn_ends: Any) -> None:
        """Append some completions of this process to samples.jsonl."""
        prompts, completions = self._components.rewards.texts
        local = self._components.context.local_rows(len(completions))
        self._run.observe(self._stage, self._components.context.step, prompts, completions, select(batch, local))


class MetricsLog(TrainerCallback):  # type: ignore[misc]
    """Writes every metric that the trainer logs to metrics.jsonl."""

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        """Append one line."""
        self._run.log(stage=self._stage.name, step=state.global_step, **logs)


class StopAtSafePoint(TrainerCallback):  # type: ignore[misc]
    """Saves a checkpoint at the next safe point after a signal, on all processes, and ends the run.

    Args:
        trainer: A trainer with the mixin `DurableCheckpoints`.
        signals: The handlers of this process.
    """

    def __init__(self, trainer: Any, signals: StopSignals) -> None:
        self._trainer, self._signals, self._number = trainer, signals, 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Defer signals to the end of the step."""
        self._signals.waits, self._signals.may_abort = True, self._trainer.may_abort_step()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Forbid aborting the step: weights change now."""
        self._signals.may_abort = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Request a checkpoint if a process received a signal."""
        self._signals.may_abort = self._trainer.may_abort_step()
        if self._trainer.is_safe_point():
            self._number = max(gather_lists([self._signals.number]))
            control.should_save |= bool(self._number)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the run after the requested checkpoint."""
        if self._number:
            raise Interrupted(self._number)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Handle signals immediately from now on: the last step is done."""
        self._signals.waits = self._signals.may_abort = False
        self._signals.raise_if_received()
