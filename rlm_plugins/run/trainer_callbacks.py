"""Callbacks and observers of every run: held-out evaluation and the best model, logs, progress, end after a signal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

from rlm_plugins.durable.files import damages, publish_sealed
from rlm_plugins.durable.stop_signals import Interrupted, StopSignals
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import select
from rlm_plugins.errors import RlmError, visible
from rlm_plugins.evaluation.held_out import SampledReport, evaluate_sampled, evaluate_stage, evaluate_suite
from rlm_plugins.evaluation.scores import Report, evaluations_without_improvement
from rlm_plugins.models.adapters import without_auxiliary
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.rewards.processes import LOCAL_DATA
from rlm_plugins.run.folder import EVALUATIONS, Run
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import saving
from rlm_plugins.trainer.observer import StepObserver
from rlm_plugins.workers.distributed import from_main_process, gather_lists, processes

WEIGHTS, SCORE = "weights.safetensors", "score.json"


class BestModel:
    """Saves the best weights and their `score` in the folder of a stage, from where a resumed stage loads the score."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.score: dict[str, Any] | None = None

    def load_score(self) -> None:
        """Set `score` to that of the weights saved by an interrupted stage; None without any or if damaged."""
        self.score = from_main_process(self._read)

    def _read(self) -> dict[str, Any] | None:
        if not self._folder.is_dir() or damages(self._folder):
            return None
        score: dict[str, Any] = json.loads((self._folder / SCORE).read_bytes())
        return score

    def update(self, model: Any, step: int, score: float, low: float, high: float) -> None:
        """Save the trained weights if the lower end of the interval is above the best one so far; NaN never is."""
        if not low > (self.score["low"] if self.score else float("-inf")):
            return
        self.score = {"step": step, "score": score, "low": low, "high": high}
        if processes().is_main_process:
            self._write(model, self.score)
        processes().wait_for_everyone()

    def _write(self, model: Any, score: dict[str, Any]) -> None:
        staged = self._folder.with_name(".best")
        with saving(self._folder, staged):
            staged.mkdir(parents=True)
            save_file({name: x.detach().cpu().contiguous() for name, x in _trained(model).items()}, staged / WEIGHTS)
            (staged / SCORE).write_text(json.dumps(score) + "\n", encoding="utf-8")
            publish_sealed(staged, self._folder)

    def restore(self, model: Any) -> None:
        """Copy the best weights into the model."""
        reasons, trained = damages(self._folder), _trained(model)
        saved = {} if reasons else load_file(self._folder / WEIGHTS)
        if reasons or saved.keys() != trained.keys():
            problem = f"the best weights cannot be used: {', '.join(reasons) or 'they are those of another model'}"
            raise RlmError(problem, where=str(self._folder), hint="`evaluation.keep: last` keeps the last weights")
        with torch.no_grad():
            for name, x in trained.items():
                x.copy_(saved[name])


def _trained(model: Any) -> dict[str, torch.Tensor]:
    """Return the trainable weights, without those of a critic."""
    trained = {name: x for name, x in model.named_parameters() if x.requires_grad}
    return without_auxiliary(model, trained) if hasattr(model, "peft_config") else trained


class LearningCurve(TrainerCallback):  # type: ignore[misc]
    """Evaluates on held-out examples before, during and after the training of a stage.

    Attributes:
        before: Report of the first evaluation.
        now: Report of the latest evaluation.
        seconds: Duration of the latest evaluation.
        log_line: Called with a line before each evaluation, and with its progress.
        generating_model: Policy → model that generates its completions: the policy itself, or TRL's vLLM.
        from_start: True if `before` was made before the first step; False in a resumed stage.
    """

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage
        self._best = BestModel(stage.folder / "best")
        self._scores: list[list[float | None]] = []
        self.before: Report | None = None
        self.now: Report | None = None
        self.from_start = True
        self.seconds = 0.0
        self.log_line: Callable[[str], None] = lambda text: None
        self.generating_model: Callable[[Any], Any] = lambda model: model

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate before the first step (in a resumed stage: at the checkpoint)."""
        self.from_start = state.global_step == 0
        if not self.from_start:
            self._best.load_score()
            self._scores = from_main_process(self._logged_scores)
        self._evaluate(state, sampled=self.from_start, **kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate every `evaluation.every` steps; the last step is left to `on_train_end`."""
        evaluation = self._stage.evaluation
        interval = evaluation.every if evaluation else 0
        if not interval or state.global_step % interval or state.global_step >= state.max_steps:
            return
        self._evaluate(state, **kwargs)
        assert evaluation is not None
        if evaluation.stop and (count := evaluations_without_improvement(self._scores)) >= evaluation.stop:
            reason = f"{count} evaluations in a row without a certain improvement"
            self._run.log_line(f"{self._stage.name}: stopped at step {state.global_step}, {reason}")
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate after the last step; then restore the best model and evaluate it, if it is to be kept."""
        evaluation, model = self._stage.evaluation, kwargs["model"]
        keeps_best = evaluation is not None and evaluation.keep == "best"
        self._evaluate(state, sampled=not keeps_best, **kwargs)
        if keeps_best and self._best.score is not None:
            if self._best.score["step"] != state.global_step:
                self._best.restore(model)
            self._evaluate(state, sampled=True, best_step=self._best.score["step"], **kwargs)

    def _evaluate(
        self,
        state: Any,
        *,
        model: Any,
        processing_class: Any,
        sampled: bool = False,
        best_step: int | None = None,
        **kwargs: Any,
    ) -> None:
        evaluation = self._stage.evaluation
        if evaluation is None:
            return
        examples = list(self._stage.environment_spec.test)[: evaluation.rows or None]
        start = time.perf_counter()
        self.log_line(f"evaluating {len(examples)} held-out prompts")
        engine = self.generating_model(model)
        report = evaluate_stage(self._stage, examples, engine, processing_class, log_line=self.log_line)
        self.before, self.now = self.before or report, report
        sampled_report, suite = None, {}
        if sampled and evaluation.samples:
            self.log_line(f"sampling {evaluation.samples} completions of each of {len(examples)} held-out prompts")
            sampled_report = evaluate_sampled(
                self._stage, examples, engine, processing_class, evaluation.samples, log_line=self.log_line
            )
        if sampled:
            suite = evaluate_suite(self._stage, engine, processing_class, self.log_line)
        self.seconds = time.perf_counter() - start
        self._run.held_out = dict(report.rewards)
        self._log(state.global_step, report, sampled_report, suite, best_step)
        if evaluation.keep == "best" and best_step is None:
            self._best.update(model, state.global_step, report.score, report.low, report.high)

    def _log(
        self,
        step: int,
        report: Report,
        sampled: SampledReport | None,
        suite: Mapping[str, Report],
        best_step: int | None,
    ) -> None:
        """Log the mean scores to metrics.jsonl, and the score of each prompt to evaluations.jsonl."""
        evaluation, position = self._stage.evaluation, {"stage": self._stage.name, "step": step}
        assert evaluation is not None
        best = {} if best_step is None else {"held_out/kept_step": best_step}
        self._run.log(
            **position,
            **{f"held_out/{label}": mean for label, mean in report.rewards.items()},
            **{"held_out/low": report.low, "held_out/high": report.high, "held_out/rows": report.rows},
            **(sampled.figures() if sampled else {}),
            **{f"suite/{name}": result.score for name, result in suite.items()},
            **best,
        )
        scores = [sample["rewards"][evaluation.metric] for sample in report.samples]
        details: dict[str, Any] = {}
        if sampled is not None:
            details = {"sampled": {**vars(sampled.scores), "k": list(sampled.ks)}}
        if suite:
            details["suite"] = {name: [result.score, result.low, result.high] for name, result in suite.items()}
        self._run.append(EVALUATIONS, {**position, "metric": evaluation.metric, "scores": scores, **details, **best})
        if best_step is None:
            self._scores.append(scores)

    def _logged_scores(self) -> list[list[float | None]]:
        """Return the scores of the evaluations before the checkpoint of a resumed stage."""
        records = self._run.records(EVALUATIONS)
        return [record["scores"] for record in records if record.get("stage") == self._stage.name]


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

    >>> shown_columns({"prompt": "1+1=?", "answer": "2", "steps": ["1+1=2"], "image": None, "environments": object()})
    {'answer': '2', 'steps': "['1+1=2']"}
    """
    left_out = {"prompt", "demonstration", *LOCAL_DATA}
    known = {name: x for name, x in row.items() if name not in left_out and x is not None}
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
