"""``rlm resume-check``: is every resumed run of a recipe equal to an uninterrupted one, byte for byte?"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm_plugins.cli.launch import launch
from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.durable.sealed import CHECKSUMS
from rlm_plugins.recipe.yaml_strict import dump
from rlm_plugins.run.folder import DONE, SUMMARY
from rlm_plugins.run.stand_in import STEPS, stand_in
from rlm_plugins.trainer.checkpoint import STATE, checkpoints

_TIMED = (STATE, "training_args.bin", "README.md")
"""Files with times or paths of a run."""


def resume_check(source: Path, overrides: Sequence[str], at: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Train the stand-in of a recipe, then resume it from each step of each stage, and compare all files.

    Args:
        source: A recipe, or the folder of a run.
        overrides: ``key=value``.
        at: Steps; by default all.

    Returns:
        Per interruption ``stage``, ``step``, ``equal`` and ``differs``: the files that differ.
    """
    recipe, _ = read(source, overrides)
    with tempfile.TemporaryDirectory(prefix="rlm-resume-check-") as name:
        folder, run, reference = Path(name), Path(name) / "run", Path(name) / "whole"
        file = folder / "recipe.yaml"
        file.write_text(dump(stand_in(recipe)), encoding="utf-8")
        _quiet(file, out=run)
        run.rename(reference)  # every run has the same path, which is in the files of adapters
        stages = sorted(path.parent.name for path in reference.glob(f"*/{DONE}"))
        expected = _digests(reference)
        results = []
        for number, stage in enumerate(stages):
            for step in at or range(1, STEPS + 1):
                shutil.copytree(reference, run)
                _interrupt(run, stages[number:], step)
                _quiet(run, resume=True)
                digests = _digests(run)
                names = expected.keys() | digests.keys()
                different = sorted(name for name in names if expected.get(name) != digests.get(name))
                results.append({"stage": stage, "step": step, "equal": not different, "differs": different})
                shutil.rmtree(run)
    return results


def render(results: Sequence[dict[str, Any]]) -> str:
    """Return a line per interruption that differs, and the count of those that are equal."""
    lines = [f"{r['stage']} step {r['step']}: differs in {', '.join(r['differs'])}" for r in results if not r["equal"]]
    equal = sum(result["equal"] for result in results)
    return "\n".join([*lines, f"{equal} of {len(results)} interruptions end with equal bytes"])


def _quiet(source: Path, **options: Any) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        launch(source, [], **options)


def _interrupt(run: Path, stages: Sequence[str], step: int) -> None:
    """Leave what a run has on disk that was killed in the first of the stages, after a step."""
    for later_stage in stages[1:]:
        shutil.rmtree(run / later_stage)
    from rlm_plugins.run.best_model import SCORE  # imports torch

    stage = run / stages[0]
    best_model, kept_folders = stage / "best", checkpoints(stage)[:step]
    if best_model.is_dir() and json.loads((best_model / SCORE).read_bytes())["step"] <= step:
        kept_folders.append(best_model)
    for path in (*stage.iterdir(), run / SUMMARY, run / "curve.png"):
        if path.is_dir() and path not in kept_folders:
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


def _digests(run: Path) -> dict[str, str]:
    """Return the checksum of each file in the checkpoints and results of a run."""
    digests: dict[str, str] = {}
    for file in run.glob(f"*/*/{CHECKSUMS}"):
        entries = json.loads(file.read_bytes())["files"]
        folder = file.parent.relative_to(run)
        digests |= {f"{folder}/{name}": entry["sha256"] for name, entry in entries.items() if name not in _TIMED}
    return digests
