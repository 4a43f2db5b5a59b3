"""From a recipe to a trained model: the stages of a run, one after the other."""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Sequence
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
from rlm_plugins.run import trainer_setup as engine
from rlm_plugins.run.callbacks import LearningCurve, Ledger, Screen
from rlm_plugins.run.folder import Run
from rlm_plugins.run.plot import learning_curve
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import latest_step


def train(recipe: Recipe, registry: Registry, folder: Path, *, resume: bool = False) -> Run:
    """Runs every stage of a recipe and writes the run folder.

    Args:
        recipe: As `recipe.load` gives it.
        registry: Where its parts are found.
        folder: The run folder; fresh, or with `resume` one that was interrupted.
        resume: Pass finished stages by and go on from the last checkpoint of the interrupted one.
    """
    began = time.perf_counter()
    _quiet()
    main = processes().is_main_process
    console = Console(quiet=not main)
    stages = compose(recipe, registry)
    run = Run(folder, main)
    if not resume:
        run.open(resolved(stages, recipe), origins(stages, registry), recipe.load)
    curve: LearningCurve | None = None
    for number, stage in enumerate(stages):
        engine.follow(stage, stages[:number])
        stage.folder, stage.resume = folder / stage.name, resume
        if resume and run.finished(stage):
            console.print(f"{stage.name}: complete, passed by")
            continue
        curve = _train_stage(run, stage, f"{number + 1}/{len(stages)} {stage.name}", console)
        run.finish(stage)
    _report(run, stages[-1], curve, time.perf_counter() - began, console)
    return run


def _quiet() -> None:
    """One progress bar is enough, ours; what TRL and transformers will rename one day is no news to a reader."""
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
    run.observers.clear()  # those of the stage before
    own = [_watcher(part, run) for part in stage.callbacks]
    screen = Screen(stage, title, curve, console)
    stage.watchers = [Ledger(run, stage), curve, screen, *own]
    stage.observer, stage.note = (lambda *seen: run.observe(stage, *seen)), (lambda faults: run.note(stage, faults))
    try:
        stage.engine(stage)
    except Fault as fault:
        raise _told(run, stage, fault) from fault.__cause__
    finally:
        screen.close()
    return curve


def _told(run: Run, stage: Stage, fault: Fault) -> Fault:
    """A fault with its samples in the run folder, and a word on how to go on."""
    run.note(stage, fault.records)
    hint = [fault.hint, f"the sample is in {run.folder / 'faults.jsonl'}"] if fault.records else [fault.hint]
    if (step := latest_step(stage.folder)) > 0:
        hint.append(f"`rlm train {run.folder} --resume` goes on from step {step}")
    if "on_error" not in fault.hint:
        hint.append("`on_error: skip` beside the reward leaves such rows out")
    return fault.but(hint="; ".join(filter(None, hint)))


def _watcher(part: Bound, run: Run) -> TrainerCallback:
    with attribute_errors(part):
        made = part.call({"run": run} if "run" in (*part.part.needs, *part.part.welcomes) else {})
    if not isinstance(made, TrainerCallback):
        raise PartError(
            f"returned {type(made).__name__}",
            where=location(part),
            allowed="an instance of transformers.TrainerCallback",
        )
    return made


def origins(stages: Sequence[Stage], registry: Registry) -> dict[str, str]:
    """The plugins a run uses: name → distribution and version."""
    parts = [p for stage in stages for p in stage.parts()]
    return {name: registry.plugins[name].origin for name in sorted({p.part.plugin for p in parts})}


def _report(run: Run, stage: Stage, curve: LearningCurve | None, seconds: float, console: Console) -> None:
    """What the run has come to: files, one problem before and after, one closing line."""
    how = stage.evaluation
    if how is None or curve is None or curve.before is None or curve.now is None or math.isnan(curve.now.score):
        run.summarise(seconds=round(seconds, 1))
        console.print(f"{run.name}: trained in {seconds:.0f} s, results in {run.folder}")
        return
    before, now, records = curve.before, curve.now, run.records()
    started = _first_score(records, stage, how.metric)
    figures: dict[str, Any] = {
        "metric": how.metric,
        "before": started,
        "after": now.score,
        "interval": [now.low, now.high],
        "held_out_rows": now.rows,
        "seconds": round(seconds, 1),
    }
    example = _example(before.samples, now.samples, how.metric) if curve.from_start else None
    run.summarise(**figures, **({"example": example} if example else {}))
    if run.main and learning_curve(records, stage.name, how.metric, run.folder / "curve.png"):
        console.print(f"learning curve: {run.folder / 'curve.png'}")
    console.print(f"results: {run.folder}")
    if example:
        for word, style in (("prompt", ""), ("before", "red"), ("after", "green")):
            console.print(f"  {word:8}{example[word]}", markup=False, highlight=False, style=style)
    line = f"{run.name}: held-out {how.metric} {now.told(started)} -> {now.told(now.score)} in {seconds:.0f} s"
    console.print(line, markup=False, highlight=False)


def _first_score(records: Sequence[dict[str, Any]], stage: Stage, metric: str) -> float:
    """The held-out score before the first step, also of a stage that was interrupted since."""
    scores = [r.get(f"held_out/{metric}") for r in records if r["stage"] == stage.name and "held_out/rows" in r]
    return math.nan if not scores or scores[0] is None else scores[0]


def _example(before: Sequence[Any], now: Sequence[Any], metric: str) -> dict[str, str] | None:
    """One held-out problem whose score rose the most, as it was answered before and after."""
    old = {sample["prompt"]: sample for sample in before}
    pairs = [(old[s["prompt"]], s) for s in now if s["prompt"] in old]
    gains = [(b["rewards"][metric] or 0) - (a["rewards"][metric] or 0) for a, b in pairs]
    if not gains:
        return None
    first, last = pairs[gains.index(max(gains))]
    return {"prompt": last["prompt"], "before": first["completion"], "after": last["completion"]}


def folder_to_resume(runs: Path, name: str) -> Path:
    """The newest run called `name` (or `name-2`, …) that has not finished.

    Raises:
        RecipeError: There is none.
    """
    ours = re.compile(rf"{re.escape(name)}(-\d+)?")
    begun = [recipe.parent for recipe in runs.glob("*/recipe.yaml") if ours.fullmatch(recipe.parent.name)]
    found = [folder for folder in begun if not (folder / "summary.json").exists()]
    if not found:
        raise RecipeError(
            "nothing to resume: no unfinished run of this recipe",
            where=str(runs / name),
            hint="leave --resume out to start one, or name the folder with --out",
        )
    return max(found, key=lambda folder: folder.stat().st_mtime)
