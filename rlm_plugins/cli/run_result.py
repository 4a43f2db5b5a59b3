"""The result of a run: the model that a finished stage has trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.run import stage_result
from rlm_plugins.run.folder import Run
from rlm_plugins.stage import Stage


def finished_stage(folder: Path, stages: Sequence[Stage], name: str | None) -> Stage:
    """Return a finished stage of a run, with its result as its model; arguments and errors of `trained_stage`."""
    trained = trained_stage(folder, stages, name)
    return replace(trained, source=replace(stage_result.result_of(trained), origin=str(trained.output)))


def trained_stage(folder: Path, stages: Sequence[Stage], name: str | None) -> Stage:
    """Return a finished stage of a run, with its initial model.

    Args:
        folder: The folder of the run.
        stages: Its composed stages.
        name: Name of a stage (``02-grpo`` or ``grpo``); None: the last finished one.

    Raises:
        RlmError: The stage is unknown or unfinished, or no stage is finished.
    """
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
    """Return the stage of that name; None without a name.

    Raises:
        RlmError: No stage has that name.
    """
    if name is None:
        return None
    names = {key: stage for stage in stages for key in (stage.name, stage.name[3:])}
    if name not in names:
        allowed = ", ".join(stage.name for stage in stages)
        raise RlmError(f"unknown or unfinished stage '{name}'", allowed=allowed, hint=nearest(name, names))
    return names[name]
