"""Runs as they are started from a shell, on one process or more, and the recipe on which those are compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from train_several import train_all

ROOT = Path(__file__).parents[1]
LESSON = ROOT / "recipes" / "lessons" / "01-addition.yaml"


def launch(recipe: Path, folder: Path, processes: int, *overrides: str) -> Path:
    """Run `rlm train`, under `accelerate launch` for several processes."""
    python(processes, "-m", "rlm_plugins", "train", str(recipe), "--out", str(folder), *overrides, cwd=folder.parent)
    return folder


def python(processes: int, *program: str, cwd: Path, config: Path | None = None) -> None:
    """Run a program, under `accelerate launch` for several processes, with a config of accelerate or DDP."""
    door = [sys.executable]
    if processes > 1 or config:
        options = ["--multi_gpu", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
        options = options if config is None else ["--config_file", str(config)]
        options += ["--num_processes", str(processes), "--main_process_port", "0"]
        door += ["-m", "accelerate.commands.launch", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run([*door, *program], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]


def logged(folder: Path, step: int = 1) -> dict[str, float]:
    """Return the logged metrics of an optimizer step of a run of one stage."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return next(line for line in lines if line["step"] == step and "loss" in line)


def supervised(folder: Path) -> Path:
    """Train a short supervised stage of the quickstart, and return the folder of its model."""
    recipe = yaml.safe_load(LESSON.read_text())
    recipe["stages"] = recipe["stages"][:1]
    file = folder / "start.yaml"
    file.write_text(yaml.safe_dump(recipe))
    short = ["stages.0.trainer.max_steps=30", "stages.0.evaluation.rows=8"]
    train_all([(str(file), str(folder / "start"), short)])
    return folder / "start" / "01-sft" / "model"


def reinforcement(folder: Path, start: Path, *, canned: bool) -> Path:
    """Write the quickstart's second stage as a recipe, with canned or generated completions."""
    recipe = yaml.safe_load(LESSON.read_text())
    body = {**{k: v for k, v in recipe.items() if k != "stages"}, **recipe["stages"][1]}
    body["model"] = {"name": "pretrained", "path": str(start), **body["model"]}
    body["trainer"] = {**body["trainer"], "learning_rate": 5e-4, "max_steps": 2, "save_strategy": "no"}
    if canned:
        body["plugins"] = {"load": [str(ROOT / "tests" / "fake_rollouts.py")]}
        body["algorithm"]["rollouts"] = ["canned"]
        body["rewards"] = ["digits", "accuracy"]
        body["environment"] = {**body["environment"], "train_rows": 256, "test_rows": 0}
        del body["evaluation"]
    else:
        body["evaluation"] = {"metric": "accuracy", "rows": 16, "max_new_tokens": 8}
    file = folder / "rl.yaml"
    file.write_text(yaml.safe_dump(body))
    return file
