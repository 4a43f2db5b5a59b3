"""The first signal saves a checkpoint and exits with 128 + n, the second ends the process; commands of several runs."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic_core
import pytest
import yaml
from fault_cases import recipe, resume, run, step_of, weights
from fault_points import in_child, start_child, status_of

from rlm_plugins.cli import app
from rlm_plugins.durable import stop_signals
from rlm_plugins.errors import RlmError
from rlm_plugins.run import recipe_argument
from rlm_plugins.trainer.checkpoint import checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.faults(group="signals")]
STEPS = {"max_steps": 6, "save_steps": 100}
"""Longer than an epoch of four steps, and no checkpoint before the last one."""
REWARD = '''
import os, signal, time
from rlm_plugins import hookimpl

def slow(completions, trainer_state):
    """Send a signal to this process in one step, and take long there."""
    if os.environ.get("AT") and trainer_state is not None and trainer_state.global_step == int(os.environ["AT"]):
        if os.environ.get("RANK", "0") == os.environ.get("ON", "0"):
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(float(os.environ.get("SECONDS_THERE", "0")))
    return [sum(map(ord, text)) % 8 / 8 for text in completions]

@hookimpl
def rlm_rewards():
    return {"slow": slow}
'''


def train(file: Path, folder: Path) -> None:
    app(["train", str(file), "--out", str(folder)])


def wait_for(text: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while not log.exists() or text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def slow_recipe(folder: Path) -> Path:
    file = recipe(folder, **STEPS)
    (folder / "slow.py").write_text(REWARD)
    document = yaml.safe_load(file.read_text()) | {"rewards": ["slow"], "plugins": {"load": ["slow.py"]}}
    document["evaluation"]["metric"] = "slow"
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 2), *(pytest.param(n, 25, marks=[pytest.mark.full, pytest.mark.matrix]) for n in (1, 2))]
)
def test_at_random_moments(tmp_path: Path, seed: int, count: int, cases: Any) -> None:
    start = time.monotonic()
    whole = run(tmp_path, "full", **STEPS)
    seconds, moments = time.monotonic() - start, random.Random(seed)
    for _ in range(count):
        number = moments.choice([signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
        moment, folder = moments.uniform(0.05, seconds), tmp_path / "run"
        with cases(f"{number.name} after {moment:.2f} s"):
            child = start_child(lambda folder=folder: train(tmp_path / "full.yaml", folder), tmp_path / "log")
            time.sleep(moment)
            os.kill(child, number)
            status, output = status_of(child), (tmp_path / "log").read_text()
            if status == -number:  # before the command had handlers
                assert not folder.exists()
                continue
            assert status in (128 + number, 0), output
            assert "Traceback" not in output
            explained = f"resume with: rlm train {folder} --resume", f"the run is finished: {folder}"
            if status and not any(text in output for text in explained):
                assert not (folder / "recipe.yaml").exists(), output
            else:
                done = (folder / "summary.json").exists()
                assert weights(folder if done else resume(folder)) == weights(whole)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_long_step_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: Any) -> None:
    """A step of any epoch is abandoned; its completions are generated again when the run is resumed."""
    file = slow_recipe(tmp_path)
    assert in_child(lambda: train(file, tmp_path / "whole"), tmp_path / "log") == 0
    monkeypatch.setattr(stop_signals, "PATIENCE", 0.1)
    monkeypatch.setenv("SECONDS_THERE", "60")
    for step in (1, 4, 5):
        with cases(f"step {step}"):
            monkeypatch.setenv("AT", str(step))
            folder = tmp_path / f"run-{step}"
            assert in_child(lambda folder=folder: train(file, folder), tmp_path / "log") == 143
            assert [path.name for path in checkpoints(folder / "01-grpo")] == [f"checkpoint-{step}"]
            monkeypatch.delenv("AT")
            assert weights(resume(folder)) == weights(tmp_path / "whole")


def test_the_second_signal_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, folder = slow_recipe(tmp_path), tmp_path / "run"
    monkeypatch.setenv("AT", "2")
    monkeypatch.setenv("SECONDS_THERE", "60")
    monkeypatch.setattr(stop_signals, "PATIENCE", 60)
    child = start_child(lambda: train(file, folder), tmp_path / "log")
    wait_for("saving a checkpoint after this step", tmp_path / "log")
    os.kill(child, signal.SIGTERM)
    assert status_of(child) == 143
    assert checkpoints(folder / "01-grpo") == []
    monkeypatch.delenv("AT")
    assert weights(resume(folder))


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """Under `nohup` a process ignores SIGHUP from its start."""

    def ignoring() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with stop_signals.StopSignals():
            os.kill(os.getpid(), signal.SIGHUP)

    assert in_child(ignoring, tmp_path / "log") == 0


def test_a_signal_that_compiled_code_wraps_is_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pydantic raises an exception of its own for one that a signal handler raises inside it."""

    def build(*args: object, **options: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(1)
        except BaseException as error:
            raise pydantic_core.SchemaError(f"Error building a validator: {error}") from None

    file = recipe(tmp_path, **STEPS)
    monkeypatch.setattr(recipe_argument, "Registry", build)
    with pytest.raises(SystemExit) as ended:
        app(["train", str(file)])
    assert ended.value.code == 128 + signal.SIGUSR1


def test_a_signal_on_one_process_stops_both_after_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, folder = slow_recipe(tmp_path), tmp_path / "run"
    options = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    options += ["--dynamo_backend", "no", "--main_process_port", "0", "-m", "rlm_plugins", "train"]
    command = [sys.executable, "-m", "accelerate.commands.launch", *options, str(file), "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "AT": "2", "ON": "1"}
    command += ["trainer.per_device_train_batch_size=4"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode != 0
    assert done.stderr.count(f"stopped by SIGTERM; resume with: rlm train {folder} --resume") == 2, done.stderr[-3000:]
    assert [path.name for path in checkpoints(folder / "01-grpo")] == ["checkpoint-3"]


@pytest.mark.faults(group="writers")
def test_a_second_writer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: Any) -> None:
    file, folder = slow_recipe(tmp_path), tmp_path / "run"
    monkeypatch.setenv("AT", "2")
    monkeypatch.setenv("SECONDS_THERE", "60")
    child = start_child(lambda: train(file, folder), tmp_path / "log")
    wait_for("saving a checkpoint after this step", tmp_path / "log")
    refused = pytest.raises(RlmError, match=rf"process {child} on host .* writes into this folder")
    with cases("the first one writes"), refused:
        resume(folder)
    os.kill(child, signal.SIGKILL)
    status_of(child)
    monkeypatch.delenv("AT")
    with cases("the first one was killed"):
        assert weights(resume(folder))
        assert not (folder / "lock").exists()


def stopped(arguments: list[str], log: Path, is_there: Callable[[], bool], number: int) -> tuple[int, str]:
    """Start a command, send it a signal as soon as something is there; return its exit code and output."""
    child, deadline = start_child(lambda: app(arguments), log), time.monotonic() + 240
    while not is_there():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    os.kill(child, number)
    return status_of(child), log.read_text()


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sweep(tmp_path: Path, number: signal.Signals) -> None:
    """Of Ctrl-C, too, its run receives one signal: it saves, and is resumed."""
    file = recipe(tmp_path, max_steps=1000, save_steps=1000)
    arguments = ["sweep", str(file), "--seeds", "1", "--out", str(tmp_path / "out")]
    run = tmp_path / "out" / "seed=1"
    status, output = stopped(arguments, tmp_path / "log", lambda: step_of(run) > 0, number)
    assert status == 128 + number, output
    assert f"stopped by {number.name}; resume with: the same command" in output
    assert "Traceback" not in output
    assert len(checkpoints(run / "01-grpo")) == 1
    assert not (run / "lock").exists()


@pytest.mark.full
def test_race(tmp_path: Path) -> None:
    file = recipe(tmp_path, "adapter", max_steps=1000, save_steps=1000)
    out = tmp_path / "out"
    arguments = ["sweep", str(file), "algorithm=grpo,rloo", "--race", "--out", str(out)]
    status, output = stopped(
        arguments, tmp_path / "log", lambda: len([*out.glob("*/metrics.jsonl")]) == 2, signal.SIGTERM
    )
    assert status == 143, output
    assert "stopped by SIGTERM; resume with: the same command" in output
    assert "Traceback" not in output
    assert not [*out.glob("*/lock")]
