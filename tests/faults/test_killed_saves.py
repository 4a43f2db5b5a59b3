"""A process killed at any file operation of a save, or of a whole run, loses at most the steps since the last save."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fault_cases import KINDS, recipe, resume, weights
from fault_points import Points, in_child

from rlm_plugins.cli.launch import launch
from rlm_plugins.durable.sealed import damages
from rlm_plugins.errors import RlmError
from rlm_plugins.run.resume_point import sound_checkpoint
from rlm_plugins.trainer.checkpoint import DurableCheckpoints

pytestmark = [pytest.mark.slow, pytest.mark.faults("F1", "SIGKILL at every file operation of a save")]
KILLED = -9


def count(log: Path) -> int:
    return int(log.read_text().split()[-1])


def saves(folder: Path, kind: str, chosen: int) -> int:
    """Save step 1, then step 2 killed at an operation; return how many operations there are."""
    points = Points(folder, chosen)
    save, steps = DurableCheckpoints._save_checkpoint, []

    def counted(trainer: Any, *arguments: Any) -> None:
        steps.append(trainer.state.global_step)
        if len(steps) == 2:
            points.install()
        save(trainer, *arguments)
        if len(steps) == 2:
            raise SystemExit

    DurableCheckpoints._save_checkpoint = counted
    try:
        launch(recipe(folder.parent, kind), [], out=folder)
    except SystemExit:
        return points.count
    raise AssertionError


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.full] * (kind != "adapter")) for kind in KINDS])
def test_kill_at_every_operation_of_a_save(tmp_path: Path, kind: str, cases: Any) -> None:
    log = tmp_path / "log"
    assert in_child(lambda: saves(tmp_path / "run", kind, -1), log) == 0, log.read_text()
    total = count(log)
    assert total > 20
    (stage,) = (tmp_path / "run").glob("01-*")
    step_1 = tmp_path / "checkpoint-1"
    shutil.copytree(stage / "checkpoint-1", step_1)
    for number in range(total) if kind != "adapter" else range(0, total, 4):
        shutil.rmtree(tmp_path / "run")
        with cases(f"{kind}, operation {number}"):
            assert in_child(lambda number=number: saves(tmp_path / "run", kind, number), log) == KILLED, log.read_text()
            reported: list[str] = []
            found = sound_checkpoint(stage, reported.append, unsealed=False)
            assert found is not None
            assert found.name in ("checkpoint-1", "checkpoint-2")
            assert not reported
            assert not damages(found)


def whole_run(file: Path, folder: Path, chosen: int) -> int:
    points = Points(folder, chosen)
    points.install()
    launch(file, [], out=folder)
    return points.count


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.full), pytest.param(0, id="end")])
def test_kill_at_every_operation_of_a_run(tmp_path: Path, every: int, cases: Any) -> None:
    """Also after the last checkpoint: then only what follows the training is repeated."""
    file, log, folder = recipe(tmp_path, "critic", max_steps=2), tmp_path / "log", tmp_path / "run"
    assert in_child(lambda: whole_run(file, folder, -1), log) == 0, log.read_text()
    total, expected = count(log), weights(folder)
    for number in range(0, total, every) if every else (total - 30, total - 12, total - 1):
        shutil.rmtree(folder)
        with cases(f"operation {number} of a run"):
            assert in_child(lambda number=number: whole_run(file, folder, number), log) == KILLED, log.read_text()
            if not (folder / "recipe.yaml").exists():
                with pytest.raises(RlmError, match="there is no run to resume"):
                    launch(file, [], out=folder, resume=True)
                continue
            assert weights(resume(folder)) == expected
            assert json.loads((folder / "summary.json").read_text())["after"] is not None
