"""``rlm train``: choose the run folder, check a resumed run, and train."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.distributed import from_main_process, shutdown
from rlm_plugins.durable.files import make_folder
from rlm_plugins.durable.lock import locked
from rlm_plugins.durable.stop_signals import current
from rlm_plugins.errors import RlmError
from rlm_plugins.run.choose_folder import folder_to_resume, fresh_folder
from rlm_plugins.run.folder import Run
from rlm_plugins.run.resume import check_links, check_resumable
from rlm_plugins.run.train import train

RUNS = Path("runs")


def launch(
    source: Path,
    overrides: Sequence[str],
    *,
    name: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    allow_changed: Collection[str] = (),
) -> Run:
    """Train a recipe, or resume a run of it.

    Args:
        source: A recipe, or the folder of a run.
        overrides: ``key=value``.
        name: Name of the run; by default the recipe's.
        out: Run folder; by default ``runs/NAME``, or ``runs/NAME-2``, … if that exists.
        resume: Resume `out`, or `source` if it is a run, or the newest unfinished run of that name.
        allow_changed: Keys that may differ from the start of the run.

    Raises:
        RlmError: The recipe is invalid, or there is no run to resume.
    """
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
            check_resumable(run, recipe, registry, allow_changed=allow_changed)
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
    """Return the name of a run.

    Raises:
        RlmError: It is not the name of a folder.
    """
    if name != Path(name).name or name in (".", ".."):
        raise RlmError(f"'{name}' is not the name of a folder", where="--name", hint="a path is set with --out")
    return name
