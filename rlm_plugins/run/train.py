"""Train a recipe: its stages one after the other, in one run folder."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import TrainerCallback, TrainerState
from transformers.trainer_callback import PrinterCallback

from rlm_plugins.data.successes import collected
from rlm_plugins.durable import stop_signals
from rlm_plugins.durable.console import unwatched
from rlm_plugins.durable.files import CHECKSUMS, damages, file_errors, is_sealed, make_folder, owner_of, remove
from rlm_plugins.durable.lock import locked
from rlm_plugins.durable.stop_signals import current
from rlm_plugins.equation.dispatch import attribute_errors, location
from rlm_plugins.equation.step import Divergence
from rlm_plugins.errors import PartError, RlmError, visible
from rlm_plugins.evaluation.completions import EngineModel
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.checks.examples import named_example
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.run.failures import repeated, save_on_failure, with_hints, with_remedy
from rlm_plugins.run.folder import SUMMARY, Run
from rlm_plugins.run.manifest import check_processes, manifest_of
from rlm_plugins.run.report import report
from rlm_plugins.run.stage_result import connected, save_result
from rlm_plugins.run.trainer_callbacks import LearningCurve, MetricsLog, ProgressDisplay, SampleLog, StopAtSafePoint
from rlm_plugins.stage import RunState, Stage
from rlm_plugins.trainer.checkpoint import STATE, checkpoints, latest_step, loadable
from rlm_plugins.trainer.options import check_sharded, integration_errors
from rlm_plugins.workers.distributed import from_main_process, processes


class TextConsole(Console):
    """A console whose texts do not act on the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; markup and highlighting are off by default."""
        texts = (visible(item) if isinstance(item, str) else item for item in objects)
        super().print(*texts, **{"markup": False, "highlight": False, "soft_wrap": True, **options})


def valid_checkpoint(stage: Path, log_line: Callable[[str], None], *, owner: str = "") -> Path | None:
    """Return the newest valid checkpoint of a stage (of run and stage `owner`); damaged ones are renamed."""
    damages_found: list[str] = []
    for checkpoint in reversed(checkpoints(stage)):
        reasons = reasons_against(checkpoint, owner=owner)
        if not reasons:
            if damages_found:
                log_line(f"{stage.name}: {'; '.join(damages_found)}; resuming from {checkpoint.name}")
            return checkpoint
        damages_found.append(f"{checkpoint.name} is damaged ({', '.join(reasons)})")
        _rename_damaged(checkpoint)
    damaged = sorted(stage.glob("checkpoint-*.damaged"))
    if not damaged:
        return None
    problem = "; ".join(damages_found) or f"{', '.join(folder.name for folder in damaged)}: damaged"
    hint = f"no sound checkpoint is left; to start the stage again, remove {stage}"
    raise RlmError(problem, where=str(stage), hint=hint)


def _rename_damaged(checkpoint: Path) -> None:
    with file_errors(checkpoint, "renamed"):
        damaged = checkpoint.with_name(f"{checkpoint.name}.damaged")
        remove(damaged)
        checkpoint.rename(damaged)


def reasons_against(checkpoint: Path, *, owner: str = "") -> list[str]:
    """Return the reasons why a checkpoint cannot be used; empty if it is valid."""
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        return ["it is not a folder"]
    if not is_sealed(checkpoint):
        return [f"{CHECKSUMS} is missing"]
    return damages(checkpoint) or _of_another_run(checkpoint, owner) or _wrong_step(checkpoint)


def _of_another_run(checkpoint: Path, owner: str) -> list[str]:
    """Return a reason if the checkpoint was copied from another run or stage; its checksums are valid then."""
    recorded = owner_of(checkpoint)
    return ["it was saved by another run or stage"] if owner and recorded and recorded != owner else []


def _wrong_step(checkpoint: Path) -> list[str]:
    """Return a reason if the state of the trainer is not that of the step in the name of the folder."""
    try:
        step = TrainerState.load_from_json(str(checkpoint / STATE)).global_step
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        return [f"{STATE} cannot be read: {error}"]
    return [] if f"checkpoint-{step}" == checkpoint.name else [f"{STATE} is that of step {step}"]


BACK_OFFS, BACK_OFF = 3, 0.1
"""Most repetitions of a stage after a divergence, and the factor of its learning rates each time."""
Prepare = Callable[[Sequence[Stage]], tuple[Sequence[Stage], Sequence[TrainerCallback]]]
"""Stages → the stages to train in their place, and further callbacks of each."""


def train(
    recipe: Recipe,
    registry: Registry,
    folder: Path,
    *,
    resume: bool = False,
    allow_changed: Collection[str] = (),
    console: Console | None = None,
    prepare: Prepare | None = None,
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
    composed = connected(compose(recipe, registry), folder)
    stages, callbacks = (composed, ()) if prepare is None else prepare(composed)
    log_line = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    run = Run(folder, main, log_line=log_line, allowed=allow_changed)
    start, curve = time.perf_counter(), None
    with _writing(run):
        if not resume or processes().num_processes > 1:
            manifest = manifest_of(stages, recipe, registry)
            check_processes(manifest)
        if not resume:
            run.open(manifest, recipe.load)
        console.print(f"run folder: {folder}")
        for number, stage in enumerate(stages):
            if resume and run.finished(stage):
                console.print(f"{stage.name}: complete, skipped")
                continue
            if stage.environment_spec.successes is not None:
                run.sync()
                stage = replace(stage, environment_spec=collected(run.folder, stage.environment_spec))
            checkpoint = _rewind(run, stage) if resume else None
            title = f"{number + 1}/{len(stages)} {stage.name}"
            with _contexts_of_sections(run, stage):
                curve = _train_stage(run, stage, title, console, checkpoint, callbacks)
            run.finish(stage)
        if curve is None and (run.folder / SUMMARY).exists():
            console.print(f"{run.name}: finished before; nothing is left to do")
        else:
            report(run, stages[-1], curve, time.perf_counter() - start, console)
    return run


@contextmanager
def _contexts_of_sections(run: Run, stage: Stage) -> Iterator[None]:
    """Open the contexts in which the sections of packages let a stage be built and trained."""
    with ExitStack() as contexts:
        for section in stage.sections.values():
            contexts.enter_context(section.training(stage, run))
        yield


@contextmanager
def _writing(run: Run) -> Iterator[None]:
    """Hold the lock of the run folder, handle the signals that end a run, and survive the loss of the console."""
    with ExitStack() as context:
        if run.main:
            make_folder(run.folder)
            context.enter_context(locked(run.folder, run.log_line))
        context.enter_context(current())
        context.enter_context(unwatched())
        current().folder = run.folder
        yield


def _silence_libraries() -> None:
    """Silence the progress bars and future warnings of other libraries: the run has one progress bar."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|trl|peft")
    warnings.filterwarnings("ignore", message="You are using 'rollout_func'")


def _rewind(run: Run, stage: Stage) -> Path | None:
    """Return the checkpoint at which a stage resumes, and remove what was logged after it."""
    choose = partial(valid_checkpoint, stage.folder, run.log_line, owner=run.owner_of(stage))
    checkpoint: Path | None = from_main_process(choose)
    run.rewind(stage, int(checkpoint.name.split("-")[1]) if checkpoint else -1)
    return checkpoint


def _train_stage(
    run: Run, stage: Stage, title: str, console: Console, checkpoint: Path | None, further: Sequence[TrainerCallback]
) -> LearningCurve:
    """Train a stage; repeat it from its last checkpoint after an error where the recipe says so."""
    state = RunState(
        owner=run.owner_of(stage) if run.main else "",
        checkpoint=checkpoint,
        log_faults=partial(run.log_faults, stage),
        record=partial(run.record, stage),
        sync=run.sync,
    )
    attempts_left = BACK_OFFS
    while True:
        curve = LearningCurve(run, stage)
        progress = ProgressDisplay(stage, title, curve, console)
        try:
            with named_example(stage):
                trainer = _built(run, stage, state, curve, progress, console, further)
                with integration_errors(stage.name), save_on_failure(trainer), stop_signals.current():
                    trainer.train(resume_from_checkpoint=loadable(trainer, state.checkpoint))
                    save_result(trainer, stage)
            return curve
        except Divergence as error:
            last_step = latest_step(stage.folder)
            if stage.body.get("on_divergence") != "back_off" or not attempts_left:
                raise with_remedy(error, run, stage, last_step) from error.__cause__
            attempts_left, state.rate_scale = attempts_left - 1, state.rate_scale * BACK_OFF
            start = f"the checkpoint of step {last_step}" if last_step > 0 else "its start"
            rates = f"learning rates × {state.rate_scale:g}"
            run.log_line(f"{error.problem}: {stage.name} is repeated from {start}, {rates}")
        except Fault as fault:
            raise with_hints(run, stage, fault) from fault.__cause__
        except Exception as error:
            stage = repeated(run, stage, error)
        finally:
            progress.close()
            if stage.policy_engine is not None:
                stage.policy_engine.close()
        trainer = None
        gc.collect()  # the memory of the attempt that failed
        state.checkpoint = _rewind(run, stage)


def _built(
    run: Run,
    stage: Stage,
    state: RunState,
    curve: LearningCurve,
    progress: ProgressDisplay,
    console: Console,
    further: Sequence[TrainerCallback],
) -> Any:
    """Return the trainer of a stage, with the callbacks and observers of the run."""
    run.observers.clear()  # those of the previous stage
    of_sections = [x for section in stage.sections.values() for x in section.callbacks(stage, run, console)]
    observers: list[Any] = [x for section in stage.sections.values() for x in section.observers(stage)]
    observers += [part.target for part in stage.extensions.observers]
    state.observers = [*observers, SampleLog(run, stage)]
    state.callbacks = [
        curve,
        progress,
        *of_sections,
        MetricsLog(run, stage),  # after those that may add a metric
        *(_callback(part, run) for part in stage.extensions.callbacks),
        *further,
    ]
    progress.status("loading the model")
    trainer = stage.trainer.build(stage, state)
    check_sharded(trainer)
    run.record(stage, settings=trainer.args.to_dict())
    trainer.remove_callback(PrinterCallback)
    if getattr(trainer.args, "use_vllm", False) and stage.source.processor is None:
        curve.generating_model = lambda _: EngineModel.of_trainer(trainer)
    for callback in (StopAtSafePoint(trainer, stop_signals.current()), *state.callbacks):
        trainer.add_callback(callback)
    trainer.before_publish, trainer.owner = state.sync, state.owner
    trainer.rescales_rates = state.rate_scale != 1
    trainer.observe(state.observers)
    trainer.check_divergence()
    return trainer


def _callback(part: Bound, run: Run) -> TrainerCallback:
    with attribute_errors(part):
        callback = part.call({"run": run} if "run" in part.part.data else {})
    if not isinstance(callback, TrainerCallback):
        allowed = "an instance of transformers.TrainerCallback"
        raise PartError(f"returned {type(callback).__name__}", where=location(part), allowed=allowed)
    return callback
