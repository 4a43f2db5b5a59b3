"""A signal to a command that trains several runs: each saves a checkpoint, and the same command goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_cases import recipe, step_of
from fault_points import start_child, status_of

from rlm_plugins.cli import app
from rlm_plugins.trainer.checkpoint import checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.faults(group="signals")]


def stopped(arguments: list[str], log: Path, is_there: Callable[[], bool], number: int) -> tuple[int, str]:
    """Start a command, send it a signal as soon as something is there; return its exit code and output."""
    child, deadline = start_child(lambda: app(arguments), log), time.monotonic() + 240
    while not is_there():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    os.kill(child, number)
    return status_of(child), log.read_text()


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
