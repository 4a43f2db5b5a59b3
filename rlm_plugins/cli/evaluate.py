"""``rlm eval``: how good a run has become, or how good a recipe starts, on held-out problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.cli.text_layout import columns
from rlm_plugins.distributed import processes
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.evaluation.evaluate import Report, judged
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry.protocols import Evaluates
from rlm_plugins.run import trainer_setup as engine
from rlm_plugins.run.folder import Run
from rlm_plugins.stage import Stage


def trial(
    source: Path, overrides: Sequence[str] = (), *, rows: int | None = None, stage: str | None = None
) -> tuple[Stage, Report]:
    """Evaluates a model on the held-out rows of its stage.

    Args:
        source: The folder of a run: what its last finished stage has made. A recipe: the model it starts from.
        overrides: ``key=value``.
        rows: Held-out rows at most; 0: all; None: as the recipe says.
        stage: The name of another stage (``02-grpo`` or ``grpo``).

    Raises:
        RlmError: No such stage, none is finished, or it has nothing to be judged by.
    """
    recipe, registry = read(source, overrides)
    stages = compose(recipe, registry)
    chosen = _trained(source, stages, stage) if source.is_dir() else _named(stages, stage) or stages[-1]
    if chosen.evaluation is None:
        raise RlmError(
            f"stage {chosen.name} cannot be judged: it has no held-out rows, no rewards, or `evaluation: none`",
            where=str(source),
        )
    return chosen, _report(chosen, rows)


def _trained(folder: Path, stages: Sequence[Stage], name: str | None) -> Stage:
    """The stage that is meant, its source being what it has made."""
    run = Run(folder, main=False)
    for number, stage in enumerate(stages):
        stage.folder = folder / stage.name
        engine.follow(stage, stages[:number])
    finished = [stage for stage in stages if run.finished(stage)]
    if not finished:
        raise RlmError(
            "no stage of this run is finished",
            where=str(folder),
            hint=f"`rlm train {folder} --resume` goes on with it; `rlm eval {folder / 'recipe.yaml'}` judges its start",
        )
    chosen = _named(finished, name) or finished[-1]
    return replace(chosen, source=replace(engine.result_of(chosen), origin=str(chosen.output)))


def _named(stages: Sequence[Stage], name: str | None) -> Stage | None:
    if name is None:
        return None
    names = {key: stage for stage in stages for key in (stage.name, stage.name[3:])}
    if name not in names:
        allowed = ", ".join(stage.name for stage in stages)
        raise RlmError(f"there is no finished stage '{name}'", allowed=allowed, hint=nearest(name, names))
    return names[name]


def _report(stage: Stage, rows: int | None) -> Report:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    how: Any = stage.evaluation
    count = how.rows if rows is None else rows
    held_out = list(stage.environment_spec.test)[: count or None]
    if isinstance(stage.engine, Evaluates):
        return stage.engine.evaluate(stage, held_out)
    return judged(stage, held_out, stage.source.load().to(processes().device), stage.source.tokenizer())


def as_data(stage: Stage, report: Report, samples: int) -> dict[str, Any]:
    """A report for programs, with the first `samples` answers."""
    assert stage.evaluation is not None
    return {
        "stage": stage.name,
        "model": stage.source.origin,
        "metric": stage.evaluation.metric,
        **{name: _number(getattr(report, name)) for name in ("score", "low", "high", "rows")},
        "rewards": {label: _number(mean) for label, mean in report.rewards.items()},
        "samples": list(report.samples[:samples]),
    }


def tell(stage: Stage, report: Report, samples: int) -> str:
    """A report for people: the answers, the mean of every reward, the score and its interval on the last line."""
    assert stage.evaluation is not None
    metric = stage.evaluation.metric
    told = [_sample(sample) for sample in report.samples[:samples]]
    told += [columns((label, f"{mean:.4f}") for label, mean in report.rewards.items())]
    score = f"{report.told(report.score)} [{report.told(report.low)}, {report.told(report.high)}]"
    score += f" on {report.rows} problems"
    return "\n".join([*told, f"{stage.name}: held-out {metric} {score} ({stage.source.origin})"])


def _number(value: float) -> float | None:
    """JSON has no NaN: the mean of a reward that applied to no row is null."""
    return None if value != value else value


def _sample(sample: Any) -> str:
    rewards = ", ".join(f"{label} {score}" for label, score in sample["rewards"].items())
    return f"  question  {sample['prompt']}\n  answer    {sample['completion']}\n  rewards   {rewards}\n"
