"""`rlm launch` and `rlm check --processes`: files and commands that start, and the refusals of a run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rlm_lab.launch import Launch, launch
from typer.testing import CliRunner

from rlm_plugins.cli.typer_app import app
from rlm_plugins.errors import RlmError

RECIPE = """
environment: {name: addition, digits: 1, train_rows: 64, test_rows: 0}
rewards: [accuracy]
model: {name: scratch, hidden: 32, lora: {r: 4, target_modules: all-linear}}
algorithm: grpo
trainer: {max_steps: 2, per_device_train_batch_size: 4, num_generations: 4, max_completion_length: 8}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "Tiny run.yaml"
    path.write_text(RECIPE)
    return path


@pytest.mark.parametrize("service", ["torchrun", "slurm", "skypilot"])
@pytest.mark.parametrize("sharding", ["none", "fsdp2", "zero3"])
def test_files_that_parse_and_name_the_processes(recipe: Path, service: str, sharding: str) -> None:
    data = launch(Launch(recipe, ["trainer.seed=2"], 2, 4, sharding), service)
    configs = [yaml.safe_load(text) for name, text in data["files"].items() if name == "accelerate.yaml"]
    assert all((config["num_machines"], config["num_processes"]) == (2, 8) for config in configs)
    assert bool(configs) == (service != "torchrun" or sharding != "none")
    task = yaml.safe_load(data["files"]["task.yaml"]) if service == "skypilot" else {}
    assert task.get("num_nodes", 2) == 2
    for script in (data["command"], data["files"].get("job.slurm", ""), task.get("run", "")):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    everything = data["command"] + json.dumps(data["files"])
    assert shlex.quote(str(recipe)).strip("'") in everything
    assert "trainer.seed=2" in everything
    assert ("not on PyPI" in everything) == (service == "skypilot")


@pytest.mark.parametrize("service", ["torchrun", "hf-jobs"])
def test_what_is_printed_trains_on_two_processes(recipe: Path, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recipe.parent)
    result = CliRunner().invoke(app, ["launch", recipe.name, "--with", service, "--processes", "2", "--json"])
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    for name, text in data["files"].items():
        Path(name).write_text(text)
    command = data["command"] if service == "torchrun" else f"{sys.executable} job.py"
    Path("torchrun").write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
    Path("torchrun").chmod(0o755)
    path = os.pathsep.join([str(recipe.parent), os.environ["PATH"]])
    done = subprocess.run(command, shell=True, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (manifest,) = Path("runs").glob("*/manifest.json")
    assert json.loads(manifest.read_text())["processes"] == 2


def test_what_cannot_be_started_is_refused_with_the_sentence_of_a_run(recipe: Path) -> None:
    overrides = ["trainer.target_kl=0.1", "trainer.num_iterations=2"]
    refused = [str(recipe), *overrides, "--processes=8", "--sharding=fsdp2"]
    sentences = [CliRunner().invoke(app, [command, *refused]).output for command in ("check", "launch")]
    assert all("`target_kl` cannot be kept with FSDP" in text for text in sentences)
    with pytest.raises(RlmError, match="expected one machine, got 2"):
        launch(Launch(recipe, nodes=2), "hf-jobs")


def test_check_plans_batch_memory_and_fall_backs(recipe: Path) -> None:
    plain, plan = (
        json.loads(CliRunner().invoke(app, ["check", str(recipe), "--json", *options]).stdout)[0]
        for options in ([], ["--processes", "8", "--sharding", "zero3"])
    )
    assert all("8 processes" in line for line in plan["batch"][:2])
    assert any("padded" in line for line in plan["speed"])
    assert not any("padded (" in line for line in plain["speed"])
    whole, shard = plain["memory"]["always"], plan["memory"]["always"]
    for name in ("frozen weights", "trained weights", "gradients", "optimizer state"):
        assert shard[name] == -(-whole[name] // 8), name
    weights = whole["frozen weights"] + whole["trained weights"]
    assert plan["memory"]["generation"]["gathered weights"] == weights
