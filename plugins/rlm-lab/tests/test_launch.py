"""`rlm launch` and `rlm check --processes`: files and commands that start, and the refusals of a run."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from rlm_lab.launch import Launch, launch
from typer.testing import CliRunner

import rlm_plugins as rlm
from rlm_plugins.cli.typer_app import app
from rlm_plugins.errors import RlmError
from rlm_plugins.registry import Registry

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


@pytest.fixture
def of_a_folder(recipe: Path) -> Path:
    spec: Any = rlm.part("model", "scratch", layers=1, hidden=32)()
    spec.load().save_pretrained(recipe.parent / "base")
    spec.tokenizer().save_pretrained(recipe.parent / "base")
    text = RECIPE.replace("name: scratch, hidden: 32", "name: ./base")
    recipe.write_text(text.replace("[accuracy]", "[accuracy, {name: length, limit: 8, weight: 0.1}]"))
    return recipe


VARIANTS = {name for name in Registry().names("rlm_algorithms") if name.endswith("@verl")}
REFUSED = {f"{name}@verl" for name in ("gmpo", "flash_rl", "dppo_tv", "dppo_kl", "gdpo", "opd", "gkd_top")}


@pytest.mark.parametrize("name", sorted(VARIANTS - REFUSED))
def test_the_conventions_of_verl_are_its_own(of_a_folder: Path, name: str) -> None:
    """Nothing that a variant `…@verl` sets differs from what verl does with the options that are printed."""
    overrides = [f"algorithm={{name: {name}, shapers: [], filters: []}}"]
    data = launch(Launch(of_a_folder, overrides, processes=2), "verl")
    assert [line for line in data["differs"] if not line.startswith(("trainer.", "data."))] == []


def test_verl_gets_the_numbers_of_a_recipe(of_a_folder: Path) -> None:
    trainer = ["gradient_accumulation_steps=2", "steps_per_generation=4", "max_steps=6", "learning_rate=3e-5"]
    overrides = ["algorithm.policy_loss.epsilon_high=0.28", *(f"trainer.{text}" for text in trainer)]
    overrides.append("algorithm.penalties=[{name: kl, beta: 0.1, estimator: k2, bound: 5}]")  # verl clamps k3 only
    data = launch(Launch(of_a_folder, overrides, processes=2), "verl")
    options = dict(text.split("=", 1) for text in shlex.split(data["command"]) if "=" in text)
    wanted = {"algorithm.adv_estimator": "grpo", "data.train_batch_size": "8", "trainer.total_training_steps": "3"}
    actor = {"ppo_mini_batch_size": "4", "clip_ratio_high": "0.28", "clip_ratio_c": "1000000000.0", "optim.lr": "3e-05"}
    wanted |= {f"actor_rollout_ref.actor.{key}": value for key, value in actor.items()}
    assert options | wanted == options
    assert {"group_relative.eps: 0.0001, in verl 1e-06", "kl.bound: 5.0, in verl null"} <= {*data["differs"]}
    with pytest.raises(RlmError, match=r"verl 0.9.1 has no option for 'signed'"):
        launch(Launch(of_a_folder, ["algorithm.advantage=signed"]), "verl")
    with pytest.raises(RlmError, match="expected whole groups of 4 in an optimizer step, got 2"):
        launch(Launch(of_a_folder, ["trainer.per_device_train_batch_size=2", "trainer.steps_per_generation=2"]), "verl")


def test_verl_gets_the_data_and_the_rewards(of_a_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(of_a_folder.parent)
    (text,) = launch(Launch(Path(of_a_folder.name)), "verl")["files"].values()
    Path("recipe_of_verl.py").write_text(text)
    subprocess.run([sys.executable, "recipe_of_verl.py"], check=True)
    score = runpy.run_path("recipe_of_verl.py")["compute_score"]
    for row in datasets.Dataset.from_parquet("train.parquet").select(range(3)):
        answer = row["reward_model"]["ground_truth"]
        given = [score(row["data_source"], text, answer, row["extra_info"]) for text in (answer, "x")]
        assert given[0] - given[1] == pytest.approx(1.0, abs=0.1)
        assert row["prompt"][0]["role"] == "user"
