"""A run in which a reward fails: no trained step is lost, the sample is kept, skipped ones are counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rlm_plugins.rewards.fault import Fault
from rlm_plugins.run.launch import launch

PART = '''
import os

from rlm_plugins import hookimpl


class Touchy:
    """Pays by the first letter; its memory pays less each time. Fails at the steps the environment names."""

    def __init__(self):
        self.pay = 1.0

    def __call__(self, completions, trainer_state):
        self.pay *= 0.5
        here = os.environ.get("RANK", "0") == os.environ.get("TOUCHY_RANK", "0")
        steps = os.environ.get("TOUCHY", "").split() if here else []
        broken = trainer_state is not None and str(trainer_state.global_step) in steps
        scores = [self.pay * (sum(map(ord, text)) % 8) / 8 for text in completions]
        return [*scores[:-1], float("nan")] if broken else scores

    def state_dict(self):
        return {"pay": self.pay}

    def load_state_dict(self, state):
        self.pay = state["pay"]


@hookimpl
def rlm_rewards():
    return {"touchy": Touchy}
'''
RECIPE = """
plugins: {load: [PART]}
environment: {name: addition, digits: 2, train_rows: 8, test_rows: 4}
rewards: [{name: touchy}, {name: length, limit: 8, weight: 0.1}]
evaluation: {metric: length, rows: 2, max_new_tokens: 4}
model: {name: scratch, hidden: 16, heads: 2, intermediate: 16}
algorithm: {name: grpo, penalties: []}
trainer:
  max_steps: 4
  per_device_train_batch_size: 8
  num_generations: 4
  max_completion_length: 4
  learning_rate: 1.0e-3
  save_strategy: "no"
"""


def recipe(folder: Path) -> Path:
    (folder / "part.py").write_text(PART)
    file = folder / "r.yaml"
    file.write_text(RECIPE.replace("PART", str(folder / "part.py")))
    return file


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(next((folder / "01-grpo" / "model").glob("*.safetensors")))


@pytest.mark.slow
def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """States of parts and random generators are restored to before the generation that failed."""
    file = recipe(tmp_path)
    whole = launch(file, [], out=tmp_path / "whole").folder
    monkeypatch.setenv("TOUCHY", "2")
    with pytest.raises(Fault, match=r"reward 'touchy'.*step 2: returned nan for sample 7") as error:
        launch(file, [], out=tmp_path / "run")
    assert "--resume` resumes from step 2" in error.value.hint
    (kept,) = [json.loads(line) for line in (tmp_path / "run" / "faults.jsonl").read_text().splitlines()]
    assert (kept["stage"], kept["step"], kept["sample"], kept["value"]) == ("01-grpo", 2, 7, "nan")
    assert kept["columns"]["answer"]
    state = json.loads((tmp_path / "run" / "01-grpo" / "checkpoint-2" / "trainer_state.json").read_text())
    assert [line["step"] for line in state["log_history"]] == [2]  # the others are in metrics.jsonl
    monkeypatch.delenv("TOUCHY")
    again = launch(tmp_path / "run", [], out=tmp_path / "run", resume=True).folder
    one, other = weights(whole), weights(again)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_skipped_completions_have_no_gradient_and_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOUCHY", "1")
    run = launch(recipe(tmp_path), ["rewards.0.on_error=skip", "trainer.max_steps=2"], out=tmp_path / "run")
    lines = [record for record in run.records() if "grad_norm" in record]
    assert [line["rewards/touchy/failed"] for line in lines] == [0, 1]
    assert [line["rewards/touchy/unscored"] for line in lines] == [0, 1 / 8]
    assert all(line["rewards/touchy/seconds"] >= 0 for line in lines)
    assert all(abs(line["rewards/touchy/share"] + line["rewards/length/share"] - 1) < 0.2 for line in lines)
    assert all(0 <= line["reward_ties"] <= 1 for line in lines)
    assert len((run.folder / "faults.jsonl").read_text().splitlines()) == 1
    assert os.environ["TOUCHY"] == "1"


@pytest.mark.slow
def test_fault_on_one_process_stops_both_after_a_checkpoint(tmp_path: Path) -> None:
    options = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    options += ["--dynamo_backend", "no", "--main_process_port", "0", "-m", "rlm_plugins", "train"]
    command = [sys.executable, "-m", "accelerate.commands.launch", *options, str(recipe(tmp_path))]
    command += ["--out", str(tmp_path / "run"), "trainer.per_device_train_batch_size=4"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOUCHY": "2", "TOUCHY_RANK": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode != 0
    assert "step 2, on process 1: returned nan for sample 3" in done.stderr, done.stderr[-3000:]
    assert (tmp_path / "run" / "01-grpo" / "checkpoint-2" / "trainer_state.json").is_file()
    (kept,) = [json.loads(line) for line in (tmp_path / "run" / "faults.jsonl").read_text().splitlines()]
    assert (kept["process"], kept["sample"]) == (1, 3)
