"""Training with PRIME: resume, two processes, and rejected configurations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rlm_testing.auxiliary_models import train_and_resume
from typer.testing import CliRunner

from rlm_plugins.cli import app

RECIPE = Path(__file__).parents[1] / "recipe.yaml"
SCORES = """
from rlm_plugins import hookimpl

def coin(completions):
    return [float(sum(map(ord, text)) % 2) for text in completions]

def canned(prompts, source_index, tokenizer):
    numbers = [sum(map(ord, str(prompt))) + 5 * i for prompt, i in zip(prompts, source_index)]
    ids = [[3 + n % 9, 3 + n % 7, 4 + n % 5][: 1 + n % 3] for n in numbers]
    return {"completion_ids": [[*row, tokenizer.eos_token_id] for row in ids]}

@hookimpl
def rlm_rewards():
    return {"coin": coin}

@hookimpl
def rlm_rollouts():
    return {"canned": canned}
"""
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("registered")]


def recipe(folder: Path, **changes: Any) -> Path:
    """Write the second stage alone, tiny, with deterministic completions and rewards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scores.py").write_text(SCORES)
    body = yaml.safe_load(RECIPE.read_text())
    stage = {**{k: v for k, v in body.items() if k not in ("stages", "evaluation")}, **body["stages"][1]}
    stage["plugins"] = {"load": ["./scores.py"]}
    stage["environment"] = {**stage["environment"], "train_rows": 64, "test_rows": 0}
    stage["rewards"] = ["coin"]
    stage["model"] |= {"name": "scratch", "layers": 1, "hidden": 32, "heads": 2, "intermediate": 64}
    implicit = {"name": "implicit_reward", "outcome": "coin", "beta": 1.0, "learning_rate": 1e-2, "batch_size": 5}
    stage["algorithm"] = {
        "name": "prime",
        "rollouts": ["canned"],
        "shapers": [implicit],
        "filters": [{"name": "accuracy_band", "reward": "coin", "low": 0.1, "high": 0.9}],
    }
    stage["trainer"] |= {"max_steps": 4, "per_device_train_batch_size": 16, "save_strategy": "steps", "save_steps": 2}
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump({**stage, **changes}))
    return file


def train(file: Path, folder: Path, *more: str) -> Path:
    done = CliRunner().invoke(app, ["train", str(file), "--out", str(folder), *more])
    assert done.exit_code == 0, done.output
    return folder / "01-prime"


def logged(stage: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (stage.parent / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line]


def remembered(stage: Path) -> dict[str, Any]:
    parts = torch.load(stage / "checkpoint-4" / "parts.pt", weights_only=True)
    (found,) = [memory for name, memory in parts.items() if name.endswith("implicit_reward")]
    return found


@pytest.fixture(scope="module")
def torch_on_one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.usefixtures("torch_on_one_thread")
def test_resume_is_exact_and_two_processes_match_one(tmp_path: Path) -> None:
    file = recipe(tmp_path)
    run = train_and_resume(file, tmp_path / "run", "implicit_reward")
    assert [line["shapers/implicit_reward/loss"] > 0 for line in run.metrics] == [True] * 4
    assert run.metrics[0]["shapers/reward"] != run.metrics[3]["shapers/reward"]
    assert b"implicit" not in run.weights, "PEFT's file is the policy's alone"
    two = _on_two(file, tmp_path / "two")
    for one_line, two_line in zip(run.metrics, logged(two), strict=True):
        for name in ("loss", "grad_norm", *(f"shapers/implicit_reward/{x}" for x in ("loss", "norm", "pairs"))):
            assert two_line.get(name) == pytest.approx(one_line.get(name), rel=1e-3, abs=1e-5), name
    for name, x in run.late.items():
        if name != "optimizer":
            torch.testing.assert_close(remembered(two)[name], x, rtol=1e-3, atol=1e-4)


def _on_two(file: Path, folder: Path) -> Path:
    options = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    door = ["-m", "accelerate.commands.launch", *options, "--dynamo_backend", "no", "--main_process_port", "0"]
    half = ["trainer.per_device_train_batch_size=8"]
    call = [sys.executable, *door, "-m", "rlm_plugins", "train", str(file), "--out", str(folder), *half]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(call, env={**os.environ, **paths}, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return folder / "01-prime"


def test_full_fine_tuning_is_rejected_before_loading(tmp_path: Path) -> None:
    file = recipe(tmp_path, model={"name": "scratch"})
    done = CliRunner().invoke(app, ["check", str(file)])
    assert done.exit_code != 0
    assert "requires a frozen base" in done.output
    assert "shapers[0]" in done.output
