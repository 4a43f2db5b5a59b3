"""``rlm train``: which recipe, which folder, and whether the run to go on with is the same one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.distributed import processes, shutdown
from rlm_plugins.errors import RlmError
from rlm_plugins.run.folder import Run, fresh_folder
from rlm_plugins.run.resume import go_on_with
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
    """Trains a recipe, or goes on with a run of it.

    Args:
        source: A recipe, or the folder of a run.
        overrides: ``key=value``.
        name: What to call the run; by default what the recipe calls itself.
        out: Its folder; by default ``runs/NAME``, or ``runs/NAME-2``, … where that is taken.
        resume: Go on with a run: `out`, or `source` when it is one, or the newest unfinished run of that name.
        allow_changed: Go on although the recipe or a plugin has changed.

    Raises:
        RlmError: The recipe cannot be run, or there is nothing to go on with.
    """
    recipe, registry = read(source, overrides)

    def folder() -> Path:
        if not resume:
            return fresh_folder(out or RUNS / (name or recipe.name))
        found = out or (source if source.is_dir() else folder_to_resume(RUNS, name or recipe.name))
        if not (found / "recipe.yaml").is_file():
            raise RlmError("there is no run to go on with", where=str(found), hint="leave --resume out to start one")
        go_on_with(found, recipe, registry, allow_changed=allow_changed)
        return found

    try:
        return train(recipe, registry, together(folder), resume=resume)
    finally:
        shutdown()


def together(decide: Callable[[], Path]) -> Path:
    """What the main process decides, on every process: alone, each might see the folder another one has just made."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return decide()
    from accelerate.utils import broadcast_object_list

    decided = [decide() if processes().is_main_process else None]
    chosen: Path = broadcast_object_list(decided)[0]
    return chosen
