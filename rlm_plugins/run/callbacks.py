"""Who watches every run: the ledger, the learning curve, and the person in front of the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from transformers import TrainerCallback

from rlm_plugins.evaluation.evaluate import Report, judged
from rlm_plugins.run.folder import Run
from rlm_plugins.stage import Stage


class Ledger(TrainerCallback):  # type: ignore[misc]
    """Writes every number the trainer logs to metrics.jsonl."""

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **kwargs: Any) -> None:
        """One line per call."""
        self._run.log(stage=self._stage.name, step=state.global_step, **logs)


class LearningCurve(TrainerCallback):  # type: ignore[misc]
    """Evaluates on held-out rows before, while and after a stage trains.

    Attributes:
        before: The report of the first evaluation.
        now: The report of the latest one.
        from_start: Whether `before` is of the model before its first step; not so in a resumed stage.
    """

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage
        self.before: Report | None = None
        self.now: Report | None = None
        self.from_start = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """How good it is before the first step (of a resumed stage: at the checkpoint)."""
        self.from_start = state.global_step == 0
        self._evaluate(state, **kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Every `evaluation.every` steps; the last step is left to `on_train_end`."""
        every = self._stage.evaluation.every if self._stage.evaluation else 0
        if every and state.global_step % every == 0 and state.global_step < state.max_steps:
            self._evaluate(state, **kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """How good it has become."""
        self._evaluate(state, **kwargs)

    def _evaluate(self, state: Any, *, model: Any, processing_class: Any, **kwargs: Any) -> None:
        how = self._stage.evaluation
        if how is None:
            return
        rows = list(self._stage.environment_spec.test)[: how.rows or None]
        report = judged(self._stage, rows, model, processing_class)
        self.before, self.now = self.before or report, report
        self._run.held_out = dict(report.rewards)
        self._run.log(
            stage=self._stage.name,
            step=state.global_step,
            **{f"held_out/{label}": mean for label, mean in report.rewards.items()},
            **{"held_out/low": report.low, "held_out/high": report.high, "held_out/rows": report.rows},
        )


class Screen(TrainerCallback):  # type: ignore[misc]
    """A progress bar that says what is happening and how good the model is; ten plain lines without a terminal."""

    def __init__(self, stage: Stage, title: str, curve: LearningCurve, console: Console) -> None:
        self._stage, self._title, self._curve, self._console = stage, title, curve, console
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[news]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: Any = None
        self._logged = ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Opens the bar."""
        self._bar.start()
        self._task = self._bar.add_task(self._title, total=state.max_steps, completed=state.global_step, news="")
        self._tell(state, line=True)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **kwargs: Any) -> None:
        """Keeps the latest reward, or where there are none the loss."""
        for name in ("reward", "loss"):
            if isinstance(logs.get(name), float):
                self._logged = f"{name} {logs[name]:.2f}"
                return

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Moves the bar."""
        tenth = max(1, state.max_steps // 10)
        self._tell(state, line=state.global_step % tenth == 0 and state.global_step < state.max_steps)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Closes the bar."""
        self._tell(state, line=True)
        self.close()

    def close(self) -> None:
        """Gives the terminal back, also after an error: without it the cursor stays hidden."""
        self._bar.stop()

    def _tell(self, state: Any, line: bool) -> None:
        news = [self._logged] if self._logged else []
        if self._curve.now is not None and self._stage.evaluation is not None:
            now = self._curve.now
            news.append(f"held-out {self._stage.evaluation.metric} {now.told(now.score)}")
        self._bar.update(self._task, completed=state.global_step, news="  ".join(news))
        if line and not self._console.is_terminal:
            self._console.print(f"{self._title}  step {state.global_step}/{state.max_steps}  {'  '.join(news)}")
