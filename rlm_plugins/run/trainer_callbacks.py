"""The transformers callbacks of every run that write its logs: metrics, and held-out evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback

from rlm_plugins.distributed import gather_lists
from rlm_plugins.durable.stop_signals import Interrupted, StopSignals
from rlm_plugins.evaluation.held_out import Report, evaluate_stage
from rlm_plugins.evaluation.sampled import SampledReport, evaluate_sampled
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
        sampled: Reports of the sampled completions, before the first and after the last step.
        seconds: Duration of the latest evaluation.
        tell: Called with what the evaluation is about to do.
        from_start: True if `before` was made before the first step; False in a resumed stage.
    """

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage
        self.before: Report | None = None
        self.now: Report | None = None
        self.sampled: list[SampledReport] = []
        self.from_start = True
        self.seconds = 0.0
        self.tell: Callable[[str], None] = lambda text: None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate before the first step (in a resumed stage: at the checkpoint)."""
        self.from_start = state.global_step == 0
        self._evaluate(state, ends=True, **kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate every `evaluation.every` steps; the last step is left to `on_train_end`."""
        every = self._stage.evaluation.every if self._stage.evaluation else 0
        if every and state.global_step % every == 0 and state.global_step < state.max_steps:
            self._evaluate(state, **kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate after the last step."""
        self._evaluate(state, ends=True, **kwargs)

    def _evaluate(self, state: Any, *, model: Any, processing_class: Any, ends: bool = False, **kwargs: Any) -> None:
        evaluation = self._stage.evaluation
        if evaluation is None:
            return
        examples = list(self._stage.environment_spec.test)[: evaluation.rows or None]
        began = time.perf_counter()
        self.tell(f"evaluating {len(examples)} held-out prompts")
        report = evaluate_stage(self._stage, examples, model, processing_class)
        self.before, self.now = self.before or report, report
        sampled = None
        if ends and evaluation.samples:
            sampled = evaluate_sampled(self._stage, examples, model, processing_class, evaluation.samples)
        self.sampled = [*self.sampled, *([sampled] if sampled else [])]
        self.seconds = time.perf_counter() - began
        self._run.held_out = dict(report.rewards)
        self._run.log(
            stage=self._stage.name,
            step=state.global_step,
            **{f"held_out/{label}": mean for label, mean in report.rewards.items()},
            **{"held_out/low": report.low, "held_out/high": report.high, "held_out/rows": report.rows},
            **(sampled.figures() if sampled else {}),
        )


class StopAtSafePoint(TrainerCallback):  # type: ignore[misc]
    """Saves a checkpoint at the next safe point after a signal, on all processes, and ends the run.

    Args:
        trainer: A trainer with the mixin `DurableCheckpoints`.
        signals: The handlers of this process.
    """

    def __init__(self, trainer: Any, signals: StopSignals) -> None:
        self._trainer, self._signals, self._number = trainer, signals, 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let signals wait for the end of the step."""
        self._signals.waits, self._signals.may_abort = True, self._trainer.may_abort_step()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Weights change now: the step cannot be given up any more."""
        self._signals.may_abort = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for a checkpoint if a process received a signal."""
        self._signals.may_abort = self._trainer.may_abort_step()
        if self._trainer.is_safe_point():
            self._number = max(gather_lists([self._signals.number]))
            control.should_save |= bool(self._number)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the run after the checkpoint that was asked for."""
        if self._number:
            raise Interrupted(self._number)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the run at once from now on: the last step is done."""
        self._signals.waits = self._signals.may_abort = False
        self._signals.raise_if_received()
