"""Runs on two processes that are killed, damaged or resumed end with the bytes of an uninterrupted one."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_cases import KINDS, check_last_save, recipe, unfinished, weights
from fault_damages import damaged
from fault_kinds import STEPS, interrupted, kind_of_run
from fault_points import Points, States, copied, in_child
from fault_processes import in_ranks, output

from rlm_plugins.run.launch import launch

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.matrix, pytest.mark.faults(group="processes")]
HALF = {"per_device_train_batch_size": 4}


def resumed(run: Path, *overrides: str, allow: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Resume a run on two processes; return its result."""

    def task() -> None:
        launch(run, list(overrides), resume=True, allow_changed=allow)

    assert in_ranks(task, run.parent) == [0, 0], output(run.parent)
    return weights(run)


def trained(folder: Path, file: Path) -> Path:
    """Train a recipe on two processes; return the run."""
    assert in_ranks(lambda: launch(file, [], out=folder / "whole"), folder) == [0, 0], output(folder)
    return folder / "whole"


@pytest.mark.parametrize("kind", ["full", "lora", "shared critic", "sft", "reward with memory"])
def test_resumed_from_every_step(tmp_path: Path, kind: str, cases: Any) -> None:
    whole = trained(tmp_path, kind_of_run(tmp_path, kind, processes=2))
    expected = weights(whole)
    assert expected
    for step in range(1, STEPS):
        with cases(f"{kind}, step {step}"):
            assert resumed(interrupted(whole, tmp_path / "run", step)) == expected
        shutil.rmtree(tmp_path / "run", ignore_errors=True)


@pytest.mark.parametrize("kind", KINDS)
def test_kill_at_every_operation(tmp_path: Path, kind: str, cases: Any) -> None:
    """Both processes are killed before an operation of either; every state is checked, every third one resumed."""
    file, out = recipe(tmp_path, kind, max_steps=2, **HALF), tmp_path / "run"

    def observed() -> None:
        Points(out, States(out, tmp_path / f"states-{os.environ['RANK']}").add).install()
        launch(file, [], out=out)

    assert in_ranks(observed, tmp_path) == [0, 0], output(tmp_path)
    expected = weights(out)
    for rank in (0, 1):
        found = list(copied(tmp_path / f"states-{rank}"))
        assert len(found) > (60, 2)[rank]
        for place, (number, operation, run) in enumerate(found):
            with cases(f"{kind}, process {rank}, operation {number}: {operation}"):
                check_last_save(run)
                if (run / "recipe.yaml").exists() and place % 3 == 0:
                    assert resumed(run) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_one_process_is_killed(tmp_path: Path, kind: str, cases: Any) -> None:
    """The launcher then ends the other process, wherever that is."""
    file = recipe(tmp_path, kind, max_steps=3, **HALF)
    expected = weights(trained(tmp_path, file))
    for rank, operation in [(0, 20), (0, 45), (0, 70), (0, 95), (1, 1), (1, 2), (1, 3)]:
        run = tmp_path / "run"
        with cases(f"{kind}, process {rank} at operation {operation}"):
            task = killed(rank, operation, run, lambda run=run: launch(file, [], out=run))
            assert -signal.SIGKILL in in_ranks(task, tmp_path, end_together=True), output(tmp_path)
            check_last_save(run)
            if (run / "recipe.yaml").exists():
                assert resumed(run) == expected
            else:  # the folder was no run yet: the same command starts one, in the next folder
                assert in_ranks(lambda run=run: launch(file, [], out=run), tmp_path) == [0, 0], output(tmp_path)
                assert weights(tmp_path / "run-2") == expected
        for folder in tmp_path.glob("run*/"):
            shutil.rmtree(folder)


def killed(rank: int, operation: int, folder: Path, task: Callable[[], Any]) -> Callable[[], Any]:
    """Return the task, in which one process is killed before one of its file operations in a folder."""

    def kill(number: int, _: str) -> None:
        if number == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    def observed() -> Any:
        if os.environ["RANK"] == str(rank):
            Points(folder, kill).install()
        return task()

    return observed


def test_damage_to_a_file_of_one_process(tmp_path: Path, cases: Any) -> None:
    """Both processes resume from the previous checkpoint."""
    whole = trained(tmp_path, recipe(tmp_path, "adapter", **HALF))
    expected = weights(whole)
    names = [name for name, file, _ in damaged(whole / "01-grpo") if file.name.startswith(("rng_state", "adapter_mo"))]
    assert {name.partition(":")[0] for name in names} == {f"rng_state_{rank}.pth" for rank in (0, 1)} | {
        "adapter_model.safetensors"
    }
    for name in names:
        with cases(name):
            copy = unfinished(whole, tmp_path / "copy")
            (file, damage), *_ = [(f, d) for n, f, d in damaged(copy / "01-grpo") if n == name]
            damage(file)
            assert resumed(copy) == expected
            assert "resuming from checkpoint-3" in output(tmp_path)
        shutil.rmtree(tmp_path / "copy")


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_by_another_number_of_processes(tmp_path: Path, kind: str, cases: Any) -> None:
    """Such a resume is refused. If it is allowed, the same examples follow, with a warning about random numbers."""
    two = trained(tmp_path, recipe(tmp_path, kind, **HALF))
    keys = ("processes", "trainer.per_device_train_batch_size")
    (tmp_path / "one").mkdir()
    one = launch(recipe(tmp_path / "one", kind), [], out=tmp_path / "one" / "whole").folder
    for before, run, batch in ((2, two, 8), (1, one, 4)):
        copy = interrupted(run, run.parent / "run", 2)
        override = f"trainer.per_device_train_batch_size={batch}"

        def again(allow: tuple[str, ...] = (), copy: Path = copy, override: str = override) -> None:
            launch(copy, [override], resume=True, allow_changed=allow)

        def statuses(task: Callable[[], Any], before: int = before) -> tuple[set[int], str]:
            if before == 1:
                return {*in_ranks(task, tmp_path)}, output(tmp_path)
            return {in_child(task, tmp_path / "log")}, (tmp_path / "log").read_text()

        with cases(f"{kind}, started by {before}: refused"):
            status, told = statuses(again)
            assert status == {70}
            assert f"processes: {before} in the run, {3 - before} now" in told
        with cases(f"{kind}, started by {before}: allowed"):
            status, told = statuses(lambda again=again: again(keys))
            assert status == {0}, told
            assert f"processes: {before} before, {3 - before} now" in told
            assert {"key": "processes", "old": str(before), "new": str(3 - before)} in json.loads(
                (copy / "manifest.json").read_text()
            )["changes"]
            assert prompts(copy) == prompts(run)


def test_processes_with_other_inputs_are_refused(tmp_path: Path, cases: Any) -> None:
    """Both end at once, at the start and on resume, with the differences of process 1."""
    file = recipe(tmp_path, **HALF)
    whole = trained(tmp_path, file)
    changes = {
        "trainer.learning_rate": ["trainer.learning_rate=0.5"],
        "environment.seed": ["environment.seed=7"],
        "data.01-grpo.train": ["environment.seed=7"],
        "trainer.max_steps": ["trainer.max_steps=3"],
    }
    for number, (key, overrides) in enumerate(changes.items()):
        copy = unfinished(whole, tmp_path / f"copy-{number}")

        def task(resume: bool, overrides: list[str] = overrides, copy: Path = copy) -> Any:
            own = overrides if os.environ["RANK"] == "1" else []
            return launch(copy if resume else file, own, out=None if resume else tmp_path / "new", resume=resume)

        for resume in (False, True):
            with cases(f"{key}, resume {resume}"):
                assert in_ranks(lambda resume=resume: task(resume), tmp_path) == [70, 70]
                told = output(tmp_path)
                assert told.count("process 1: would train something else than process 0") == 2
                assert f"{key}: " in told
        assert not (tmp_path / "new" / "recipe.yaml").exists()


def prompts(run: Path) -> list[tuple[int, str]]:
    """Return step and prompt of the logged samples."""
    lines = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    return [(line["step"], line["prompt"]) for line in lines]
