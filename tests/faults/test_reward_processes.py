"""Rewards that end or block the process of a run: the run reports it, or the next one does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PART = """
import os, re, signal
from rlm_plugins import hookimpl


def kills(completions, trainer_state):
    if trainer_state is not None and trainer_state.global_step == 1 and os.environ.get("KILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    return [float(len(text) % 3) for text in completions]


def holds(completions, trainer_state):
    if trainer_state is not None and trainer_state.global_step == 1:
        re.match(r"(a+)+$", "a" * 60 + "b")
    return [float(len(text) % 3) for text in completions]


@hookimpl
def rlm_rewards():
    return {"kills": kills, "holds": holds}
"""
RECIPE = """
plugins: {load: [part.py]}
environment: {name: addition, digits: 2, train_rows: 8, test_rows: 4}
rewards: [REWARD]
model: {name: scratch, hidden: 16, heads: 2, intermediate: 16}
algorithm: {name: grpo, penalties: []}
evaluation: null
trainer: {max_steps: 2, per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 4, save_steps: 1}
"""
SHORT_GRACE = (
    "import rlm_plugins.workers.time_limit as w; w.GRACE = 1.0; from rlm_plugins.cli.typer_app import main; main()"
)


def command(folder: Path, reward: str, *more: str, script: str = "", **variables: str) -> Any:
    (folder / "part.py").write_text(PART)
    (folder / "r.yaml").write_text(RECIPE.replace("REWARD", reward))
    program = ["-c", script] if script else ["-m", "rlm_plugins"]
    arguments = [sys.executable, *program, "train", "r.yaml", "--out", "run", *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.full
@pytest.mark.faults(group="F6")
def test_ended_processes_name_the_reward(tmp_path: Path, cases: Any) -> None:
    with cases("SIGKILL by the reward is named by the next run"):
        assert command(tmp_path, "kills", KILL="1").returncode == -9
        resumed = command(tmp_path, "kills", "--resume")
        assert resumed.returncode == 0, resumed.stderr[-2000:]
        assert "ended without an error during a call of reward 'kills'" in resumed.stdout
        assert "step 1" in resumed.stdout
    with cases("a call that holds the interpreter"):
        blocked = command(tmp_path, "{name: holds, timeout: 1}", "--name", "holds", script=SHORT_GRACE)
        assert blocked.returncode == 1
        assert re.search(r'part.py", line \d+ in holds', blocked.stderr), blocked.stderr[-3000:]
        assert (tmp_path / "run-2" / "01-grpo" / "checkpoint-1").is_dir()
