"""Start of a training run: its folder, chosen and locked, and the stages of a run by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rlm_plugins.durable.files import make_folder
from rlm_plugins.durable.lock import locked
from rlm_plugins.durable.stop_signals import current
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.run import stage_result
from rlm_plugins.run.folder import Run, folder_to_resume, fresh_folder
from rlm_plugins.run.manifest import check_links, check_resumable
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.train import train
from rlm_plugins.stage import Stage
from rlm_plugins.workers.distributed import from_main_process, shutdown


def finished_stage(folder: Path, stages: Sequence[Stage], name: str | None) -> Stage:
    """Return a finished stage of a run, with its result as its model; arguments and errors of `trained_stage`."""
    trained = trained_stage(folder, stages, name)
    return replace(trained, source=replace(stage_result.result_of(trained), origin=str(trained.output)))


def trained_stage(folder: Path, stages: Sequence[Stage], name: str | None) -> Stage:
    """Return a finished stage of a run (``02-grpo`` or ``grpo``; None: the last one), with its initial model."""
    run = Run(folder, main=False)
    finished = [stage for stage in stage_result.connected(stages, folder) if run.finished(stage)]
    if not finished:
        raise RlmError(
            "no stage of this run is finished",
            where=str(folder),
            hint=f"resume it: `rlm train {folder} --resume`, or evaluate its start: "
            f"`rlm eval {folder / 'recipe.yaml'}`",
        )
    return named_stage(finished, name) or finished[-1]


def named_stage(stages: Sequence[Stage], name: str | None) -> Stage | None:
    """Return the stage of that name; None without a name."""
    if name is None:
        return None
    names = {key: stage for stage in stages for key in (stage.name, stage.name[3:])}
    if name not in names:
        allowed = ", ".join(stage.name for stage in stages)
        raise RlmError(f"unknown or unfinished stage '{name}'", allowed=allowed, hint=nearest(name, names))
    return names[name]


RUNS = Path("runs")


def launch(
    source: Path,
    overrides: Sequence[str],
    *,
    name: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    allow_changed: Collection[str] = (),
    exact: bool = False,
) -> Run:
    """Train a recipe, or resume a run of it.

    Args:
        source: A recipe, or the folder of a run.
        overrides: ``key=value``.
        name: Name of the run; None: the recipe's.
        out: Run folder; None: ``runs/NAME``, or ``runs/NAME-2``, … if that exists.
        resume: Resume `out`, or `source` if it is a run, or the newest unfinished run of that name.
        allow_changed: Keys that may differ from the start of the run.
        exact: Do not resume where numbers are rounded differently than at the start of the run.
    """
    if exact and not resume:
        raise RlmError("expected --resume beside --exact")
    recipe, registry = read(source, overrides, allow_changed)
    with ExitStack() as context:
        context.callback(shutdown)

        def folder() -> Path:
            if not resume:
                return _new_folder(out or RUNS / _checked(name or recipe.name), context)
            run = out or (source if source.is_dir() else folder_to_resume(RUNS, name or recipe.name))
            if not (run / "recipe.yaml").is_file():
                raise RlmError("there is no run to resume", where=str(run), hint="leave --resume out to start one")
            check_links(run)
            current().folder = run
            context.enter_context(locked(run))
            check_resumable(run, recipe, registry, allow_changed=allow_changed, exact=exact)
            return run

        return train(recipe, registry, from_main_process(folder), resume=resume, allow_changed=allow_changed)


def _new_folder(preferred: Path, context: ExitStack) -> Path:
    """Create and lock a folder without a run; another process may create one at the same time."""
    while True:
        folder = fresh_folder(preferred)
        make_folder(folder)
        context.enter_context(locked(folder))
        if not (folder / "recipe.yaml").exists():
            return folder


def _checked(name: str) -> str:
    """Return the name of a run."""
    if name != Path(name).name or name in (".", ".."):
        raise RlmError(f"'{name}' is not the name of a folder", where="--name", hint="a path is set with --out")
    return name
