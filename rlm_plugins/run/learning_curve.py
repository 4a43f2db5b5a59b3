"""Held-out evaluation of a stage before, during and after training: its log, the best model, and the early stop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from rlm_plugins.durable.files import damages, publish_sealed
from rlm_plugins.errors import RlmError
from rlm_plugins.evaluation.held_out import SampledReport, evaluate_sampled, evaluate_stage, evaluate_suite
from rlm_plugins.evaluation.scores import Report, evaluations_without_improvement
from rlm_plugins.models.adapters import without_auxiliary
from rlm_plugins.run.folder import EVALUATIONS, Run
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import saving
from rlm_plugins.workers.distributed import from_main_process, processes

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
        from safetensors.torch import save_file

        staged = self._folder.with_name(".best")
        with saving(self._folder, staged):
            staged.mkdir(parents=True)
            save_file({name: x.detach().cpu().contiguous() for name, x in _trained(model).items()}, staged / WEIGHTS)
            (staged / SCORE).write_text(json.dumps(score) + "\n", encoding="utf-8")
            publish_sealed(staged, self._folder)

    def restore(self, model: Any) -> None:
        """Copy the best weights into the model."""
        from safetensors.torch import load_file

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
