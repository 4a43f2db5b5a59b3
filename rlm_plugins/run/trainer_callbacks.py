"""The transformers callbacks of every run: metrics log, held-out evaluation, progress bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from transformers import TrainerCallback

from rlm_plugins.evaluation.held_out import Report, evaluate_stage
from rlm_plugins.run.folder import Run
from rlm_plugins.stage import Stage


class MetricsLog(TrainerCallback):  # type: ignore[misc]
    """Writes every metric that the trainer logs to metrics.jsonl."""

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **kwargs: Any) -> None:
        """Append one line."""
        self._run.log(stage=self._stage.name, step=state.global_step, **logs)


class LearningCurve(TrainerCallback):  # type: ignore[misc]
    """Evaluates on held-out examples before, during and after the training of a stage.

    Attributes:
        before: Report of the first evaluation.
        now: Report of the latest evaluation.
        from_start: True if `before` was made before the first step; False in a resumed stage.
    """

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage
        self.before: Report | None = None
        self.now: Report | None = None
        self.from_start = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate before the first step (in a resumed stage: at the checkpoint)."""
        self.from_start = state.global_step == 0
        self._evaluate(state, **kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate every `evaluation.every` steps; the last step is left to `on_train_end`."""
        every = self._stage.evaluation.every if self._stage.evaluation else 0
        if every and state.global_step % every == 0 and state.global_step < state.max_steps:
            self._evaluate(state, **kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate after the last step."""
        self._evaluate(state, **kwargs)

    def _evaluate(self, state: Any, *, model: Any, processing_class: Any, **kwargs: Any) -> None:
        evaluation = self._stage.evaluation
        if evaluation is None:
            return
        examples = list(self._stage.environment_spec.test)[: evaluation.rows or None]
        report = evaluate_stage(self._stage, examples, model, processing_class)
        self.before, self.now = self.before or report, report
        self._run.held_out = dict(report.rewards)
        self._run.log(
            stage=self._stage.name,
            step=state.global_step,
            **{f"held_out/{label}": mean for label, mean in report.rewards.items()},
            **{"held_out/low": report.low, "held_out/high": report.high, "held_out/rows": report.rows},
        )


class ProgressDisplay(TrainerCallback):  # type: ignore[misc]
    """A progress bar with the latest scores; without a terminal, ten plain lines."""

    def __init__(self, stage: Stage, title: str, curve: LearningCurve, console: Console) -> None:
        self._stage, self._title, self._curve, self._console = stage, title, curve, console
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[scores]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: Any = None
        self._logged = ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the bar."""
        self._bar.start()
        self._task = self._bar.add_task(self._title, total=state.max_steps, completed=state.global_step, scores="")
        self._refresh(state, line=True)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **kwargs: Any) -> None:
        """Store the latest reward, or the loss if there is none."""
        for name in ("reward", "loss"):
            if isinstance(logs.get(name), float):
                self._logged = f"{name} {logs[name]:.2f}"
                return

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the bar."""
        tenth = max(1, state.max_steps // 10)
        self._refresh(state, line=state.global_step % tenth == 0 and state.global_step < state.max_steps)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self._refresh(state, line=True)
        self.close()

    def close(self) -> None:
        """Release the terminal, also after an error: otherwise the cursor stays hidden."""
        self._bar.stop()

    def _refresh(self, state: Any, line: bool) -> None:
        scores = [self._logged] if self._logged else []
        if self._curve.now is not None and self._stage.evaluation is not None:
            now = self._curve.now
            scores.append(f"held-out {self._stage.evaluation.metric} {now.text_of(now.score)}")
        self._bar.update(self._task, completed=state.global_step, scores="  ".join(scores))
        if line and not self._console.is_terminal:
            self._console.print(f"{self._title}  step {state.global_step}/{state.max_steps}  {'  '.join(scores)}")
