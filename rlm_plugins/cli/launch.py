"""``rlm train``: choose the run folder, check a resumed run, and train."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.distributed import processes, shutdown
from rlm_plugins.errors import RlmError
from rlm_plugins.run.folder import Run, fresh_folder
from rlm_plugins.run.resume import check_resumable
from rlm_plugins.run.train import folder_to_resume, train

RUNS = Path("runs")


def launch(
    source: Path,
    overrides: Sequence[str],
    *,
    name: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    allow_changed: bool = False,
) -> Run:
    """Train a recipe, or resume a run of it.

    Args:
        source: A recipe, or the folder of a run.
        overrides: ``key=value``.
        name: Name of the run; by default the recipe's.
        out: Run folder; by default ``runs/NAME``, or ``runs/NAME-2``, … if that exists.
        resume: Resume `out`, or `source` if it is a run, or the newest unfinished run of that name.
        allow_changed: Resume even if the recipe or a plugin has changed.

    Raises:
        RlmError: The recipe is invalid, or there is no run to resume.
    """
    recipe, registry = read(source, overrides)

    def folder() -> Path:
        if not resume:
            return fresh_folder(out or RUNS / (name or recipe.name))
        run = out or (source if source.is_dir() else folder_to_resume(RUNS, name or recipe.name))
        if not (run / "recipe.yaml").is_file():
            raise RlmError("there is no run to resume", where=str(run), hint="leave --resume out to start one")
        check_resumable(run, recipe, registry, allow_changed=allow_changed)
        return run

    try:
        return train(recipe, registry, from_main_process(folder), resume=resume)
    finally:
        shutdown()


def from_main_process(choose: Callable[[], Path]) -> Path:
    """Return the choice of the main process on every process: another one might see the folder it has just created."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return choose()
    from accelerate.utils import broadcast_object_list

    choices = [choose() if processes().is_main_process else None]
    folder: Path = broadcast_object_list(choices)[0]
    return folder
