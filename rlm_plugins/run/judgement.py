"""Scores of the model of a run or a recipe on its held-out examples, as objects and as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import transformers

from rlm_plugins.durable.files import plain
from rlm_plugins.errors import RlmError
from rlm_plugins.evaluation.completions import EngineModel
from rlm_plugins.evaluation.held_out import SampledReport, evaluate_sampled, evaluate_stage
from rlm_plugins.evaluation.scores import Report
from rlm_plugins.models.pretrained import tokenizer_of
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.registry.protocols import Evaluates
from rlm_plugins.run.launch import finished_stage, named_stage
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.options import arguments
from rlm_plugins.workers.distributed import processes


@dataclass(frozen=True)
class Judgement:
    """Scores of a model on one held-out set."""

    name: str
    stage: Stage
    report: Report
    sampled: SampledReport | None


def evaluate(
    stages: Sequence[Stage], *, rows: int | None = None, k: int = 0, log_line: Callable[[str], None] = lambda text: None
) -> list[Judgement]:
    """Evaluate stages on their held-out examples and suites; the model of the first one is loaded for all.

    Args:
        stages: As :func:`judged_stage` returns them.
        rows: Maximum number of held-out examples of a set; 0: all; None: as in the recipe.
        k: Completions sampled per example, for pass@k and majority@k; 0: none.
        log_line: Called with progress.
    """
    judgements: list[Judgement] = []
    loaded: tuple[Any, Any] | None = None
    try:
        for stage in stages:
            if isinstance(stage.trainer, Evaluates):
                report = stage.trainer.evaluate(stage, _examples(stage, rows))
                judgements.append(Judgement(stage.name, stage, report, None))
                continue
            loaded = loaded or _load(stage, log_line)
            sets = {stage.name: stage.environment_spec, **stage.suite}
            for name, environment_spec in sets.items():
                set_stage = replace(stage, environment_spec=environment_spec)
                examples = _examples(set_stage, rows)
                report = evaluate_stage(set_stage, examples, *loaded, log_line=log_line)
                sampled = evaluate_sampled(set_stage, examples, *loaded, k, log_line=log_line) if k else None
                judgements.append(Judgement(name, set_stage, report, sampled))
    finally:
        for engine in (stage.policy_engine for stage in stages if stage.policy_engine is not None):
            engine.close()
    return judgements


def judged_stage(source: Path, loaded: tuple[Recipe, Registry], stage: str | None) -> Stage:
    """Return the stage of a run or a recipe that is judged on its own examples."""
    stages = compose(*loaded, held_out_only=True)
    if source.is_dir():
        return checked(finished_stage(source, stages, stage), source)
    return checked(named_stage(stages, stage) or stages[-1], source)


def checked(stage: Stage, source: Path) -> Stage:
    """Return the stage if it can be evaluated; `source` is named in the error if it cannot."""
    if stage.evaluation is None:
        raise RlmError(
            f"stage {stage.name} cannot be evaluated: no held-out examples, no rewards, or `evaluation: null`",
            where=str(source),
        )
    return stage


def _examples(stage: Stage, rows: int | None) -> list[Any]:
    assert stage.evaluation is not None
    return list(stage.environment_spec.test)[: (stage.evaluation.rows if rows is None else rows) or None]


def _load(stage: Stage, log_line: Callable[[str], None]) -> tuple[Any, Any]:
    """Return model and tokenizer; with an engine, it has the weights of the model."""
    transformers.utils.logging.disable_progress_bar()
    log_line(f"loading {stage.source.origin}")
    processing_class = stage.source.processing_class()
    if (engine := stage.policy_engine) is not None:
        if stage.source.processor is not None:
            raise RlmError("engines judge models of text alone here", where="engine", hint="trainer.use_vllm=false")
        assert stage.evaluation is not None
        tokenizer, size = tokenizer_of(processing_class), stage.evaluation.batch_size
        model = EngineModel.started(engine, stage.source.load(), tokenizer, arguments(stage), size)
        return model, processing_class
    return stage.source.load().to(processes().device), processing_class


def as_data(judged: Sequence[Judgement], samples: int) -> dict[str, Any]:
    """Return the scores as plain data, with `samples` completions of each set; of several sets all are in ``sets``."""
    entries = [_entry(judgement, samples) for judgement in judged]
    return {**entries[0], **({"sets": entries} if len(entries) > 1 else {})}


def _entry(judged: Judgement, samples: int) -> dict[str, Any]:
    stage, report = judged.stage, judged.report
    assert stage.evaluation is not None
    return {
        "set": judged.name,
        "stage": stage.name,
        "model": stage.source.origin,
        "metric": stage.evaluation.metric,
        **plain({name: getattr(report, name) for name in ("score", "low", "high", "rows")}),
        **(judged.sampled.as_data() if judged.sampled else {}),
        "rewards": plain(report.rewards),
        "samples": list(report.samples[:samples]),
    }
