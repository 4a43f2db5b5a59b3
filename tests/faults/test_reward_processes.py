"""A reward that blocks the process of a run: the run ends with its stack."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PART = """
import re
from rlm_plugins import hookimpl


def holds(completions, trainer_state):
    if trainer_state is not None and trainer_state.global_step == 1:
        re.match(r"(a+)+$", "a" * 60 + "b")
    return [float(len(text) % 3) for text in completions]


@hookimpl
def rlm_rewards():
    return {"holds": holds}
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


@pytest.mark.faults(group="F6")
def test_blocked_process_names_the_reward(tmp_path: Path, cases: Any) -> None:
    with cases("a call that holds the interpreter"):
        blocked = command(tmp_path, "{name: holds, timeout: 1}", script=SHORT_GRACE)
        assert blocked.returncode == 1
        assert re.search(r'part.py", line \d+ in holds', blocked.stderr), blocked.stderr[-3000:]
        assert (tmp_path / "run" / "01-grpo" / "checkpoint-1").is_dir()
