"""``rlm eval``: held-out score of a run, or of the initial model of a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.cli.text_layout import columns
from rlm_plugins.distributed import processes
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.evaluation.held_out import Report, evaluate_stage
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry.protocols import Evaluates
from rlm_plugins.run import trainer_setup
from rlm_plugins.run.folder import Run
from rlm_plugins.stage import Stage


def evaluate(
    source: Path, overrides: Sequence[str] = (), *, rows: int | None = None, stage: str | None = None
) -> tuple[Stage, Report]:
    """Evaluate a model on the held-out examples of its stage.

    Args:
        source: The folder of a run, for the result of its last finished stage; a recipe, for its initial model.
        overrides: ``key=value``.
        rows: Maximum number of held-out examples; 0: all; None: as in the recipe.
        stage: Name of another stage (``02-grpo`` or ``grpo``).

    Raises:
        RlmError: The stage is unknown or unfinished, or it has no evaluation.
    """
    recipe, registry = read(source, overrides)
    stages = compose(recipe, registry)
    chosen = _trained(source, stages, stage) if source.is_dir() else _named(stages, stage) or stages[-1]
    if chosen.evaluation is None:
        raise RlmError(
            f"stage {chosen.name} cannot be evaluated: no held-out examples, no rewards, or `evaluation: none`",
            where=str(source),
        )
    return chosen, _report(chosen, rows)


def _trained(folder: Path, stages: Sequence[Stage], name: str | None) -> Stage:
    """Return the chosen finished stage, with its result as its model."""
    run = Run(folder, main=False)
    for number, stage in enumerate(stages):
        stage.folder = folder / stage.name
        trainer_setup.connect(stage, stages[:number])
    finished = [stage for stage in stages if run.finished(stage)]
    if not finished:
        raise RlmError(
            "no stage of this run is finished",
            where=str(folder),
            hint=f"resume it: `rlm train {folder} --resume`, or evaluate its start: "
            f"`rlm eval {folder / 'recipe.yaml'}`",
        )
    chosen = _named(finished, name) or finished[-1]
    return replace(chosen, source=replace(trainer_setup.result_of(chosen), origin=str(chosen.output)))


def _named(stages: Sequence[Stage], name: str | None) -> Stage | None:
    if name is None:
        return None
    names = {key: stage for stage in stages for key in (stage.name, stage.name[3:])}
    if name not in names:
        allowed = ", ".join(stage.name for stage in stages)
        raise RlmError(f"unknown or unfinished stage '{name}'", allowed=allowed, hint=nearest(name, names))
    return names[name]


def _report(stage: Stage, rows: int | None) -> Report:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    settings: Any = stage.evaluation
    count = settings.rows if rows is None else rows
    held_out = list(stage.environment_spec.test)[: count or None]
    if isinstance(stage.engine, Evaluates):
        return stage.engine.evaluate(stage, held_out)
    return evaluate_stage(stage, held_out, stage.source.load().to(processes().device), stage.source.tokenizer())


def as_data(stage: Stage, report: Report, samples: int) -> dict[str, Any]:
    """Return a report as plain data, with the first `samples` completions."""
    assert stage.evaluation is not None
    return {
        "stage": stage.name,
        "model": stage.source.origin,
        "metric": stage.evaluation.metric,
        **{name: _number(getattr(report, name)) for name in ("score", "low", "high", "rows")},
        "rewards": {label: _number(mean) for label, mean in report.rewards.items()},
        "samples": list(report.samples[:samples]),
    }


def render(stage: Stage, report: Report, samples: int) -> str:
    """Return a report as text: completions, mean of every reward, and on the last line the score with its interval."""
    assert stage.evaluation is not None
    listed = [_sample(sample) for sample in report.samples[:samples]]
    means = columns((label, f"{mean:.4f}") for label, mean in report.rewards.items())
    score, low, high = (report.text_of(value) for value in (report.score, report.low, report.high))
    line = f"{stage.name}: held-out {stage.evaluation.metric} {score} [{low}, {high}] on {report.rows} examples"
    return "\n".join([*listed, means, f"{line} ({stage.source.origin})"])


def _number(value: float) -> float | None:
    """Return null for NaN, which JSON lacks: the mean of a reward that applied to no completion."""
    return None if value != value else value


def _sample(sample: Any) -> str:
    rewards = ", ".join(f"{label} {score}" for label, score in sample["rewards"].items())
    return f"  prompt      {sample['prompt']}\n  completion  {sample['completion']}\n  rewards     {rewards}\n"
