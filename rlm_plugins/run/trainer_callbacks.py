"""Callbacks and observers of every run: its logs, its progress on a terminal, and its end after a signal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from transformers import TrainerCallback

from rlm_plugins.durable.stop_signals import Interrupted, StopSignals
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import select
from rlm_plugins.errors import visible
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.run.folder import Run
from rlm_plugins.run.learning_curve import LearningCurve
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.observer import StepObserver
from rlm_plugins.workers.distributed import gather_lists

RECENT = 20
"""Steps whose median is the speed."""


class ProgressDisplay(TrainerCallback):  # type: ignore[misc]
    """A progress bar with speed, time left and the latest scores; without a terminal, a dozen plain lines."""

    def __init__(self, stage: Stage, title: str, curve: LearningCurve, console: Console) -> None:
        self._stage, self._title, self._curve, self._console = stage, title, curve, console
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[scores]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=None, scores="")
        self._latest_metric, self._step_start, self._seconds, self._is_started = "", 0.0, list[float](), False
        curve.log_line = self.status

    def status(self, text: str) -> None:
        """Show a text before or between steps; without a terminal only before the first step."""
        self._bar.start()
        self._bar.update(self._task, scores=visible(text))
        if not self._is_started and not self._console.is_terminal:
            self._print(text)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the bar."""
        self._is_started = True
        self._bar.start()
        self._bar.update(self._task, total=state.max_steps, completed=state.global_step)
        self._refresh(state, line=True)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock of a step."""
        self._step_start = time.perf_counter()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the clock, before evaluation and checkpoints."""
        self._seconds = [*self._seconds[-RECENT:], time.perf_counter() - self._step_start]

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **kwargs: Any) -> None:
        """Store the latest reward, or the loss if there is none."""
        for name in ("reward", "loss"):
            if isinstance(logs.get(name), float):
                self._latest_metric = f"{name} {logs[name]:.2f}"
                return

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the bar."""
        step, tenth = state.global_step, max(1, state.max_steps // 10)
        self._refresh(state, line=(step == 1 or step % tenth == 0) and step < state.max_steps)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self._refresh(state, line=True)
        self.close()

    def close(self) -> None:
        """Release the terminal, also after an error: otherwise the cursor stays hidden."""
        self._bar.stop()

    def _refresh(self, state: Any, line: bool) -> None:
        evaluation, report = self._stage.evaluation, self._curve.now
        parts = [*self._speed(state), *([self._latest_metric] if self._latest_metric else [])]
        if report is not None and evaluation is not None:
            parts.append(f"held-out {evaluation.metric} {report.text_of(report.score)}")
        self._bar.update(self._task, completed=state.global_step, scores=visible("  ".join(parts)))
        if line and not self._console.is_terminal:
            self._print("  ".join([f"step {state.global_step}/{state.max_steps}", *parts]))

    def _speed(self, state: Any) -> list[str]:
        """Return seconds a step, and the time left with the evaluations to come; nothing before the first step."""
        if not self._seconds:
            return []
        seconds, steps_left = median(self._seconds), state.max_steps - state.global_step
        interval = self._stage.evaluation.every if self._stage.evaluation else 0
        evaluations = 1 + (state.max_steps - 1) // interval - state.global_step // interval if interval else 1
        remaining = f"{duration(seconds * steps_left + self._curve.seconds * evaluations)} left"
        return [f"{seconds:.3g} s/step", *([remaining] if steps_left else [])]

    def _print(self, text: str) -> None:
        self._console.print(f"{self._title}  {text}", markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Return a duration in the unit that fits.

    >>> duration(42.4), duration(200), duration(9000)
    ('42 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class ScoredCompletions(StepObserver):
    """Pairs the scored completions of this process with the columns of their examples."""

    def __init__(self) -> None:
        self._components: Any = None
        self._columns: dict[str, Mapping[str, Any]] = {}

    def attach(self, trainer: Any) -> None:
        """Store the collaborators of the trainer; one with a loss of its own has none, and scores nothing."""
        self._components = getattr(trainer, "components", None)

    def completions(self, inputs: Sequence[Mapping[str, Any]], view: Any) -> None:
        """Store the examples by their prompts: with dynamic sampling, a batch is from several calls."""
        self._columns |= {text_of(prompt): row for prompt, row in zip(view.prompts, inputs, strict=False)}

    def local(self, batch: Batch) -> tuple[Sequence[Any], Sequence[Any], list[dict[str, Any]], Batch]:
        """Return prompts, completions, the other columns of their examples, and the batch, all of this process."""
        prompts, completions = self._components.rewards.texts
        columns = [shown_columns(self._columns.get(text_of(prompt), {})) for prompt in prompts]
        self._columns = {}
        return prompts, completions, columns, select(batch, self._components.context.local_rows(len(completions)))


def shown_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an example beside its prompt, for logs: numbers, and texts of at most 1,000 characters.

    >>> shown_columns({"prompt": "1+1=?", "answer": "2", "steps": ["1+1=2"], "image": None})
    {'answer': '2', 'steps': "['1+1=2']"}
    """
    known = {
        name: value for name, value in row.items() if name not in ("prompt", "demonstration") and value is not None
    }
    return {name: x if isinstance(x, int | float) else str(x)[:1000] for name, x in known.items()}


class SampleLog(ScoredCompletions):
    """Logs the scored completions of this process."""

    def __init__(self, run: Run, stage: Stage) -> None:
        super().__init__()
        self._run, self._stage = run, stage

    def scored(self, batch: Batch, turn_ends: Any) -> None:
        """Append some completions of this process to samples.jsonl."""
        prompts, completions, columns, local = self.local(batch)
        self._run.observe(self._stage, self._components.context.step, prompts, completions, local, columns)


class MetricsLog(TrainerCallback):  # type: ignore[misc]
    """Writes every metric that the trainer logs to metrics.jsonl; the state of the trainer keeps the last line only."""

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        """Append one line."""
        self._run.log(stage=self._stage.name, step=state.global_step, **logs)
        del state.log_history[:-1]  # every checkpoint would hold all of them


class StopAtSafePoint(TrainerCallback):  # type: ignore[misc]
    """Saves a checkpoint at the next safe point after a signal, on all processes, and ends the run."""

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
