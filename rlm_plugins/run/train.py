"""Train a recipe: its stages one after the other, in one run folder."""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import TrainerCallback

from rlm_plugins.dispatch import attribute_errors, location
from rlm_plugins.distributed import processes
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import compose, resolved
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.run import trainer_setup
from rlm_plugins.run.folder import Run
from rlm_plugins.run.plot import learning_curve
from rlm_plugins.run.trainer_callbacks import LearningCurve, MetricsLog, ProgressDisplay
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import latest_step


def train(recipe: Recipe, registry: Registry, folder: Path, *, resume: bool = False) -> Run:
    """Run every stage of a recipe and write the run folder.

    Args:
        recipe: As `recipe.load` returns it.
        registry: Supplies its parts.
        folder: The run folder; new, or with `resume` that of an interrupted run.
        resume: Skip finished stages and resume the interrupted one from its last checkpoint.
    """
    start = time.perf_counter()
    _silence_libraries()
    main = processes().is_main_process
    console = Console(quiet=not main)
    stages = compose(recipe, registry)
    run = Run(folder, main)
    if not resume:
        run.open(resolved(stages, recipe), origins(stages, registry), recipe.load)
    curve: LearningCurve | None = None
    for number, stage in enumerate(stages):
        trainer_setup.connect(stage, stages[:number])
        stage.folder, stage.resume = folder / stage.name, resume
        if resume and run.finished(stage):
            console.print(f"{stage.name}: complete, skipped")
            continue
        curve = _train_stage(run, stage, f"{number + 1}/{len(stages)} {stage.name}", console)
        run.finish(stage)
    _report(run, stages[-1], curve, time.perf_counter() - start, console)
    return run


def _silence_libraries() -> None:
    """Silence the progress bars and future warnings of other libraries: the run has one progress bar."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|trl|peft")
    warnings.filterwarnings("ignore", message="You are using 'rollout_func'")


def _train_stage(run: Run, stage: Stage, title: str, console: Console) -> LearningCurve:
    if stage.resume:
        run.rewind(stage, latest_step(stage.folder))
    curve = LearningCurve(run, stage)
    run.observers.clear()  # those of the previous stage
    own = [_callback(part, run) for part in stage.callbacks]
    progress = ProgressDisplay(stage, title, curve, console)
    stage.watchers = [MetricsLog(run, stage), curve, progress, *own]
    stage.observer = partial(run.observe, stage)
    stage.note = partial(run.note, stage)
    try:
        stage.engine(stage)
    except Fault as fault:
        raise _with_hints(run, stage, fault) from fault.__cause__
    finally:
        progress.close()
    return curve


def _with_hints(run: Run, stage: Stage, fault: Fault) -> Fault:
    """Log the samples of a fault and return it with hints on how to resume."""
    run.note(stage, fault.records)
    hint = [fault.hint, f"the sample is in {run.folder / 'faults.jsonl'}"] if fault.records else [fault.hint]
    if (step := latest_step(stage.folder)) > 0:
        hint.append(f"`rlm train {run.folder} --resume` resumes from step {step}")
    if "on_error" not in fault.hint:
        hint.append("`on_error: skip` beside the reward excludes such completions")
    return fault.replace(hint="; ".join(filter(None, hint)))


def _callback(part: Bound, run: Run) -> TrainerCallback:
    with attribute_errors(part):
        callback = part.call({"run": run} if "run" in (*part.part.needs, *part.part.welcomes) else {})
    if not isinstance(callback, TrainerCallback):
        allowed = "an instance of transformers.TrainerCallback"
        raise PartError(f"returned {type(callback).__name__}", where=location(part), allowed=allowed)
    return callback


def origins(stages: Sequence[Stage], registry: Registry) -> dict[str, str]:
    """Return the distribution and version of every plugin that the stages use."""
    parts = [p for stage in stages for p in stage.parts()]
    return {name: registry.plugins[name].origin for name in sorted({p.part.plugin for p in parts})}


def _report(run: Run, stage: Stage, curve: LearningCurve | None, seconds: float, console: Console) -> None:
    """Write the summary and print the results: files, one prompt before and after, the final score."""
    evaluation = stage.evaluation
    if evaluation is None or curve is None or curve.before is None or curve.now is None or math.isnan(curve.now.score):
        run.summarize(seconds=round(seconds, 1))
        console.print(f"{run.name}: trained in {seconds:.0f} s, results in {run.folder}")
        return
    before, now, records = curve.before, curve.now, run.records()
    initial = _first_score(records, stage, evaluation.metric)
    figures: dict[str, Any] = {
        "metric": evaluation.metric,
        "before": initial,
        "after": now.score,
        "interval": [now.low, now.high],
        "held_out_rows": now.rows,
        "seconds": round(seconds, 1),
    }
    example = _example(before.samples, now.samples, evaluation.metric) if curve.from_start else None
    run.summarize(**figures, **({"example": example} if example else {}))
    if run.main and learning_curve(records, stage.name, evaluation.metric, run.folder / "curve.png"):
        console.print(f"learning curve: {run.folder / 'curve.png'}")
    console.print(f"results: {run.folder}")
    if example:
        for key, style in (("prompt", ""), ("before", "red"), ("after", "green")):
            console.print(f"  {key:8}{example[key]}", markup=False, highlight=False, style=style)
    scores = f"{now.text_of(initial)} -> {now.text_of(now.score)}"
    line = f"{run.name}: held-out {evaluation.metric} {scores} in {seconds:.0f} s"
    console.print(line, markup=False, highlight=False)


def _first_score(records: Sequence[dict[str, Any]], stage: Stage, metric: str) -> float:
    """Return the held-out score before the first step, also of a stage that was resumed since."""
    scores = [r.get(f"held_out/{metric}") for r in records if r["stage"] == stage.name and "held_out/rows" in r]
    return math.nan if not scores or scores[0] is None else scores[0]


def _example(before: Sequence[Any], now: Sequence[Any], metric: str) -> dict[str, str] | None:
    """Return the held-out prompt whose score rose most, with its completions before and after."""
    old = {sample["prompt"]: sample for sample in before}
    pairs = [(old[s["prompt"]], s) for s in now if s["prompt"] in old]
    gains = [(b["rewards"][metric] or 0) - (a["rewards"][metric] or 0) for a, b in pairs]
    if not gains:
        return None
    first, last = pairs[gains.index(max(gains))]
    return {"prompt": last["prompt"], "before": first["completion"], "after": last["completion"]}


def folder_to_resume(runs: Path, name: str) -> Path:
    """Return the folder of the newest unfinished run named `name` (or `name-2`, …).

    Raises:
        RecipeError: All runs of that name are finished.
    """
    names = re.compile(rf"{re.escape(name)}(-\d+)?")
    folders = [recipe.parent for recipe in runs.glob("*/recipe.yaml") if names.fullmatch(recipe.parent.name)]
    unfinished = [folder for folder in folders if not (folder / "summary.json").exists()]
    if not unfinished:
        raise RecipeError(
            "nothing to resume: no unfinished run of this recipe",
            where=str(runs / name),
            hint="leave --resume out to start one, or name the folder with --out",
        )
    return max(unfinished, key=lambda folder: folder.stat().st_mtime)
