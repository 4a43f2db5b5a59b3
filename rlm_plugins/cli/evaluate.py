"""``rlm eval``: held-out score of a run, or of the initial model of a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.cli.run_result import finished_stage, named_stage
from rlm_plugins.cli.text_layout import columns
from rlm_plugins.distributed import processes
from rlm_plugins.errors import RlmError
from rlm_plugins.evaluation.held_out import Report, evaluate_stage
from rlm_plugins.evaluation.sampled import SampledReport, evaluate_sampled
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry.protocols import Evaluates
from rlm_plugins.stage import Stage


def evaluate(
    source: Path, overrides: Sequence[str] = (), *, rows: int | None = None, stage: str | None = None, k: int = 0
) -> tuple[Stage, Report, SampledReport | None]:
    """Evaluate a model on the held-out examples of its stage.

    Args:
        source: The folder of a run, for the result of its last finished stage; a recipe, for its initial model.
        overrides: ``key=value``.
        rows: Maximum number of held-out examples; 0: all; None: as in the recipe.
        stage: Name of another stage (``02-grpo`` or ``grpo``).
        k: Completions sampled per example, for mean@k and pass@k; 0: none.

    Raises:
        RlmError: The stage is unknown or unfinished, or it has no evaluation.
    """
    recipe, registry = read(source, overrides)
    stages = compose(recipe, registry)
    chosen = finished_stage(source, stages, stage) if source.is_dir() else named_stage(stages, stage) or stages[-1]
    if chosen.evaluation is None:
        raise RlmError(
            f"stage {chosen.name} cannot be evaluated: no held-out examples, no rewards, or `evaluation: none`",
            where=str(source),
        )
    return chosen, *_reports(chosen, rows, k)


def _reports(stage: Stage, rows: int | None, k: int) -> tuple[Report, SampledReport | None]:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    settings: Any = stage.evaluation
    count = settings.rows if rows is None else rows
    held_out = list(stage.environment_spec.test)[: count or None]
    if isinstance(stage.engine, Evaluates):
        return stage.engine.evaluate(stage, held_out), None
    model, tokenizer = stage.source.load().to(processes().device), stage.source.tokenizer()
    report = evaluate_stage(stage, held_out, model, tokenizer)
    return report, evaluate_sampled(stage, held_out, model, tokenizer, k) if k else None


def as_data(stage: Stage, report: Report, sampled: SampledReport | None, samples: int) -> dict[str, Any]:
    """Return both reports as plain data, with the first `samples` completions."""
    assert stage.evaluation is not None
    return {
        "stage": stage.name,
        "model": stage.source.origin,
        "metric": stage.evaluation.metric,
        **{name: _number(getattr(report, name)) for name in ("score", "low", "high", "rows")},
        **({"k": sampled.k, "mean_at_k": sampled.mean, "pass_at_k": sampled.best} if sampled else {}),
        "rewards": {label: _number(mean) for label, mean in report.rewards.items()},
        "samples": list(report.samples[:samples]),
    }


def render(stage: Stage, report: Report, sampled: SampledReport | None, samples: int) -> str:
    """Return both reports as text: completions, means of the rewards, and last the score with its interval."""
    assert stage.evaluation is not None
    listed = [_sample(sample) for sample in report.samples[:samples]]
    means = columns((label, f"{mean:.4f}") for label, mean in report.rewards.items())
    score, low, high = (report.text_of(value) for value in (report.score, report.low, report.high))
    line = f"{stage.name}: held-out {stage.evaluation.metric} {score} [{low}, {high}] on {report.rows} examples"
    drawn = [f"  sampled: {sampled.text()}"] if sampled else []
    return "\n".join([*listed, means, *drawn, f"{line} ({stage.source.origin})"])


def _number(value: float) -> float | None:
    """Return null for NaN, which JSON lacks: the mean of a reward that applied to no completion."""
    return None if value != value else value


def _sample(sample: Any) -> str:
    rewards = ", ".join(f"{label} {score}" for label, score in sample["rewards"].items())
    return f"  prompt      {sample['prompt']}\n  completion  {sample['completion']}\n  rewards     {rewards}\n"
