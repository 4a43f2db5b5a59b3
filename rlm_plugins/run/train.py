"""Train a recipe: its stages one after the other, in one run folder."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from transformers import TrainerCallback

from rlm_plugins.data.successes import collected
from rlm_plugins.dispatch import attribute_errors, location
from rlm_plugins.distributed import from_main_process, processes
from rlm_plugins.divergence import Divergence
from rlm_plugins.durable.files import make_folder
from rlm_plugins.durable.lock import locked
from rlm_plugins.durable.stop_signals import current
from rlm_plugins.errors import PartError
from rlm_plugins.kernels.host_memory import keep_freed_memory
from rlm_plugins.kernels.tuning import applied
from rlm_plugins.lazy import torch
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.rewards.call_marker import marked_calls
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.run import kernel_choices, stage_result
from rlm_plugins.run.console import TextConsole
from rlm_plugins.run.folder import SUMMARY, Run
from rlm_plugins.run.learning_curve import LearningCurve
from rlm_plugins.run.live_diagnosis import LiveDiagnosis
from rlm_plugins.run.manifest import manifest_of
from rlm_plugins.run.progress import FastPathLine, ProgressDisplay
from rlm_plugins.run.report import report
from rlm_plugins.run.resume_point import valid_checkpoint
from rlm_plugins.run.trainer_callbacks import MetricsLog
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.checkpoint import latest_step

BACK_OFFS, BACK_OFF = 3, 0.1
"""Most repetitions of a stage after a divergence, and the factor of its learning rates each time."""


def train(
    recipe: Recipe,
    registry: Registry,
    folder: Path,
    *,
    resume: bool = False,
    allow_changed: Collection[str] = (),
    console: Console | None = None,
    prepare: Callable[[Sequence[Stage]], None] | None = None,
) -> Run:
    """Run every stage of a recipe and write the run folder.

    Args:
        recipe: As `recipe.load` returns it.
        registry: Supplies its parts.
        folder: The run folder; new, or with `resume` that of an interrupted run.
        resume: Skip finished stages and resume the interrupted one from its last checkpoint.
        allow_changed: Keys that may differ from the start of the run.
        console: Where progress is printed; None: the terminal.
        prepare: Called with the composed stages before the first one begins.
    """
    _silence_libraries()
    main = processes().is_main_process
    console = console or TextConsole(quiet=not main)
    stages = compose(recipe, registry)
    if prepare is not None:
        prepare(stages)
    log_line = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    run = Run(folder, main, log_line=log_line, allowed=allow_changed)
    with _writing(run):
        values = from_main_process(partial(_kernel_choices, run, stages, resume))
        if not resume:
            run.open({**manifest_of(stages, recipe, registry), "tuning": values} if main else {}, recipe.load)
        if not torch.accelerator.is_available():
            keep_freed_memory()
        with applied(values):
            _train_stages(run, stages, resume, console)
    return run


def _kernel_choices(run: Run, stages: Sequence[Stage], resume: bool) -> dict[str, int]:
    """Return the values of `kernels/tuning.py`; a resumed run uses those of its start: others round differently."""
    if not resume:
        return kernel_choices.values(*(stage.speed for stage in stages))
    recorded: dict[str, int] = run.manifest().get("tuning", {})
    return recorded


@contextmanager
def _writing(run: Run) -> Iterator[None]:
    """Hold the lock of the run folder, and handle the signals that end a run."""
    with ExitStack() as context:
        if run.main:
            make_folder(run.folder)
            context.enter_context(locked(run.folder, run.log_line))
        context.enter_context(current())
        context.enter_context(marked_calls(run.folder, run.log_line))
        current().folder = run.folder
        yield


def _train_stages(run: Run, stages: list[Stage], resume: bool, console: Console) -> None:
    start, curve = time.perf_counter(), None
    for number, stage in enumerate(stages):
        stage_result.connect(stage, stages[:number])
        stage.folder = run.folder / stage.name
        if resume and run.finished(stage):
            console.print(f"{stage.name}: complete, skipped")
            continue
        if stage.environment_spec.successes is not None:
            run.sync()
            stage.environment_spec = collected(run.folder, stage.environment_spec)
        if resume:
            _rewind(run, stage)
        curve = _train_or_back_off(run, stage, f"{number + 1}/{len(stages)} {stage.name}", console)
        run.finish(stage)
    if curve is None and (run.folder / SUMMARY).exists():
        console.print(f"{run.name}: finished before; nothing is left to do")
        return
    report(run, stages[-1], curve, time.perf_counter() - start, console)


def _silence_libraries() -> None:
    """Silence the progress bars and future warnings of other libraries: the run has one progress bar."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|trl|peft")
    warnings.filterwarnings("ignore", message="You are using 'rollout_func'")


def _rewind(run: Run, stage: Stage) -> None:
    """Set the checkpoint at which a stage resumes, and remove what was logged after it."""
    choose = partial(valid_checkpoint, stage.folder, run.log_line, owner=run.owner_of(stage))
    stage.checkpoint = from_main_process(choose)
    run.rewind(stage, int(stage.checkpoint.name.split("-")[1]) if stage.checkpoint else -1)


def _train_or_back_off(run: Run, stage: Stage, title: str, console: Console) -> LearningCurve:
    """Train a stage; after a divergence, repeat it from its last checkpoint if the recipe says so.

    Raises:
        Divergence: With the checkpoint that was kept.
    """
    for attempts_left in reversed(range(BACK_OFFS + 1)):
        try:
            return _train_stage(run, stage, title, console)
        except Divergence as error:
            last_step = latest_step(stage.folder)
            if stage.body.get("on_divergence") != "back_off" or not attempts_left:
                raise _with_remedy(error, run, stage, last_step) from error.__cause__
            stage.rate_scale *= BACK_OFF
            if stage.critic is not None and isinstance(stage.critic.learning_rate, float):
                rate = stage.critic.learning_rate * BACK_OFF
                stage.critic = dataclasses.replace(stage.critic, learning_rate=rate)
            start = f"the checkpoint of step {last_step}" if last_step > 0 else "its start"
            run.log_line(
                f"{error.problem}: {stage.name} is repeated from {start}, learning rates × {stage.rate_scale:g}"
            )
            _rewind(run, stage)
    raise AssertionError("the last attempt returns or raises")


def _with_remedy(error: Divergence, run: Run, stage: Stage, last_step: int) -> Divergence:
    hints = [error.hint, f"the last good checkpoint is that of step {last_step}" if last_step > 0 else ""]
    rate = "critic" if "of the critic" in error.problem else "trainer"
    hints += [f"lower `{rate}.learning_rate` or `max_grad_norm`", "`on_divergence: back_off` repeats from a checkpoint"]
    if last_step > 0:
        hints += [f"`rlm train {run.folder} --resume` resumes from it"]
    where = ", ".join(filter(None, (f"stage '{stage.name}'", error.where)))
    return Divergence(error.problem, where=where, allowed=error.allowed, hint="; ".join(filter(None, hints)))


def _train_stage(run: Run, stage: Stage, title: str, console: Console) -> LearningCurve:
    curve = LearningCurve(run, stage)
    run.observers.clear()  # those of the previous stage
    callbacks = [_callback(part, run) for part in stage.callbacks]
    progress = ProgressDisplay(stage, title, curve, console)
    stage.watchers = [
        MetricsLog(run, stage),
        FastPathLine(stage, console),
        curve,
        progress,
        LiveDiagnosis(stage, console),
        *callbacks,
        *stage.race_callbacks,
    ]
    stage.observer = partial(run.observe, stage)
    stage.log_faults, stage.sync, stage.record = partial(run.log_faults, stage), run.sync, partial(run.record, stage)
    stage.owner = run.owner_of(stage) if run.main else ""
    progress.status("loading the model")
    try:
        stage.trainer(stage)
    except Fault as fault:
        raise _with_hints(run, stage, fault) from fault.__cause__
    finally:
        progress.close()
    return curve


def _with_hints(run: Run, stage: Stage, fault: Fault) -> Fault:
    """Log the samples of a fault and return it with hints on how to resume."""
    run.log_faults(stage, fault.records)
    hint = [fault.hint, f"the sample is in {run.folder / 'faults.jsonl'}"] if fault.records else [fault.hint]
    if (step := latest_step(stage.folder)) > 0:
        hint.append(f"`rlm train {run.folder} --resume` resumes from step {step}")
    if "on_error" not in fault.hint:
        hint.append("`on_error: skip` beside the reward excludes such completions")
    return fault.replace(hint="; ".join(filter(None, hint)))


def _callback(part: Bound, run: Run) -> TrainerCallback:
    with attribute_errors(part):
        callback = part.call({"run": run} if "run" in part.part.data else {})
    if not isinstance(callback, TrainerCallback):
        allowed = "an instance of transformers.TrainerCallback"
        raise PartError(f"returned {type(callback).__name__}", where=location(part), allowed=allowed)
    return callback
