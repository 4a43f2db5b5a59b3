"""A run that is killed without warning and resumed ends with the bytes of an uninterrupted one."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from fault_cases import resume, run, weights
from fault_points import start_child, status_of
from launch_runs import LESSON, launch

from rlm_plugins.run.launch import launch as start_run

SHORT = ("stages.0.trainer.max_steps=60", "stages.1.trainer.max_steps=8", "stages.1.trainer.save_steps=2")


def recipe(folder: Path) -> Path:
    """Write a short quickstart with so few problems that the run reaches its second epoch."""
    document = yaml.safe_load(LESSON.read_text())
    document["environment"]["train_rows"] = 40
    document["evaluation"]["rows"] = 16
    document["stages"][0]["evaluation"]["rows"] = 16
    file = folder / "lesson.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def kill_at(file: Path, folder: Path, sign: Path, *more: str) -> None:
    """Start a run and kill it with SIGKILL as soon as the file `sign` exists."""
    command = [sys.executable, "-m", "rlm_plugins", "train", str(file), "--out", str(folder), *SHORT, *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (folder.parent / "killed.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    deadline = time.monotonic() + 300
    while not sign.exists():
        assert process.poll() is None, (folder.parent / "killed.log").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.faults(group="F2")
@pytest.mark.parametrize("seed", range(4))
def test_a_quarter_of_a_hundred_kills(tmp_path: Path, seed: int, cases: Any) -> None:
    """Runs with a critic and two epochs are forked from this process; every third one is killed twice."""
    steps, moments = {"max_steps": 6, "save_steps": 2}, random.Random(seed)
    start = time.monotonic()
    expected = weights(run(tmp_path, "critic", **steps))
    seconds, folder = time.monotonic() - start, tmp_path / "run"
    for number in range(25):
        with cases(f"kill {number}"):
            for attempt in range(1 + (number % 3 == 0)):
                task = partial(started, tmp_path / "critic.yaml", folder, resume=attempt > 0)
                child = start_child(task, tmp_path / "log")
                time.sleep(moments.uniform(0, seconds))
                os.kill(child, signal.SIGKILL)
                status_of(child)
            if (folder / "recipe.yaml").exists():
                assert weights(resume(folder)) == expected
                assert json.loads((folder / "summary.json").read_text())["after"] is not None
        shutil.rmtree(folder, ignore_errors=True)


def started(file: Path, folder: Path, *, resume: bool) -> None:
    """Start a run, or resume it if it was started."""
    start_run(file, [], out=folder, resume=resume and (folder / "recipe.yaml").exists())


@pytest.mark.matrix
@pytest.mark.slow
@pytest.mark.faults(group="F2")
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """One run is killed between the stages, early in the second stage and in its second epoch."""
    file = recipe(tmp_path)
    whole = launch(file, tmp_path / "whole", 1, *SHORT)
    broken = tmp_path / "broken"
    for number, sign in enumerate(("01-sft/done", "02-grpo/checkpoint-2", "02-grpo/checkpoint-6")):
        kill_at(file, broken, broken / sign, *(["--resume"] if number else []))
    assert not (broken / "summary.json").exists()
    launch(file, broken, 1, *SHORT, "--resume")
    for name in ("01-sft/model/model.safetensors", "02-grpo/adapter/adapter_model.safetensors"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    for score in ("before", "after"):
        assert summary(broken)[score] == summary(whole)[score]
    for file in ("metrics.jsonl", "samples.jsonl"):
        assert training_records(broken, file) == training_records(whole, file)


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def training_records(folder: Path, file: str) -> list[dict[str, Any]]:
    """Return the records of training in a log without the fields that depend on the clock or on the start of counting.

    (A resumed run is also evaluated where it goes on: one line more.)
    """
    lines = [json.loads(line) for line in (folder / file).read_text().splitlines() if "held_out/" not in line]
    clock = ("runtime", "per_second", "/seconds", "step_time", "train_loss", "total_flos", "num_tokens")
    return [{k: v for k, v in line.items() if not any(word in k for word in clock)} for line in lines]
