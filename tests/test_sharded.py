"""FSDP2 and DeepSpeed on two processes of the CPU: the numbers of one process, whole results, and refusals."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from launch_runs import ROOT, logged, python, reinforcement, supervised
from safetensors.torch import load_file
from train_several import train_all

from rlm_plugins.errors import RlmError
from rlm_plugins.stage import Critic
from rlm_plugins.trainer.options import check_sharding

LAUNCH = ROOT / "plugins" / "rlm-lab" / "src" / "rlm_lab" / "accelerate_configs"
SHORT = ("max_steps=3", "optim=sgd", "learning_rate=0.1", "num_iterations=2", "save_strategy=steps", "save_steps=2")
BOTH = tuple(f"trainer.{setting}" for setting in SHORT)
HALVES = ("trainer.per_device_train_batch_size=32",)
CASES = {
    "lora": (),
    "full": ("model.lora=null",),
    "ppo": (
        "model.lora=null",
        "algorithm={name: ppo, rollouts: [canned]}",
        "critic={kind: separate}",
        "trainer.learning_rate=0.01",  # with 0.1 the loss explodes, and rounding with it
    ),
}
SHARDED = {"fsdp2": "", "zero2": "deepspeed", "zero3": "deepspeed"}
"""Config of accelerate → package that it requires."""
has_deepspeed = importlib.util.find_spec("deepspeed") is not None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train every case on one process, and return a folder with the recipe."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("sharded")
    recipe = str(reinforcement(folder, supervised(folder), canned=True))
    train_all([(recipe, str(folder / "one" / name), [*BOTH, *case]) for name, case in CASES.items()])
    return folder


def launch(folder: Path, config: str, jobs: list[tuple[str, str, list[str]]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Train jobs on two processes that a config of accelerate shards."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]))
    (folder / f"{config}.json").write_text(json.dumps(jobs))
    python(
        2,
        str(ROOT / "tests" / "sharded_runs.py"),
        str(folder / f"{config}.json"),
        cwd=folder,
        config=LAUNCH / f"{config}.yaml",
    )


def numbers(run: Path) -> list[tuple[float, float]]:
    """Return loss and gradient norm of each step of a run."""
    return [(line["loss"], line["grad_norm"]) for line in (logged(run, step) for step in range(1, 4))]


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the result of a run."""
    (file,) = [*run.glob("01-*/adapter/*.safetensors"), *run.glob("01-*/model/*.safetensors")]
    return load_file(file)


@pytest.mark.slow
@pytest.mark.parametrize("config", SHARDED)
def test_two_processes_that_shard_train_as_one(folder: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if SHARDED[config] and not has_deepspeed:
        pytest.skip("deepspeed is not installed")
    recipe, runs = str(folder / "rl.yaml"), folder / config
    cases = {name: case for name, case in CASES.items() if (config, name) != ("zero3", "ppo")}
    jobs = [(recipe, str(runs / name), [*BOTH, *HALVES, *case]) for name, case in cases.items()]
    launch(folder, config, jobs, monkeypatch)
    for name in cases:
        one, two = ((numbers(run / name), weights(run / name)) for run in (folder / "one", runs))
        torch.testing.assert_close(two, one, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
def test_a_sharded_run_resumes_on_two_processes_and_on_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With AdamW: PyTorch cannot broadcast the optimizer state of SGD, which is empty."""
    saves = ("trainer.optim=adamw_torch", "trainer.save_strategy=steps", "trainer.save_steps=2")
    recipe = str(folder / "rl.yaml")
    jobs = [(recipe, str(folder / "resumed" / name), [*BOTH, *saves, *case]) for name, case in CASES.items()]
    halves = [(recipe, run, [*overrides, *HALVES]) for recipe, run, overrides in jobs]
    launch(folder, "fsdp2", halves, monkeypatch)
    expected = {run: (weights(Path(run)), numbers(Path(run))[-1]) for _, run, _ in jobs}
    for resume in (lambda: launch(folder, "fsdp2", halves, monkeypatch), lambda: train_all(jobs)):
        for run in expected:
            interrupt(Path(run))
        resume()
        for run, before in expected.items():
            torch.testing.assert_close((weights(Path(run)), numbers(Path(run))[-1]), before, rtol=2e-5, atol=2e-5)


def interrupt(run: Path) -> None:
    """Remove what a run wrote after the checkpoint of its second step."""
    (stage,) = run.glob("01-*")
    (stage / "done").unlink()
    for name in ("adapter", "model", "checkpoint-3"):
        shutil.rmtree(stage / name, ignore_errors=True)


@pytest.mark.parametrize(
    ("stage", "args", "problem"),
    [
        ({"critic": Critic(kind="shared")}, {}, "critic.kind.*`shared` is a part of the policy.*with FSDP"),
        ({"critic": Critic(kind="separate", warmup_steps=2)}, {}, "critic.warmup_steps"),
        ({}, {"target_kl": 0.1}, "trainer.target_kl"),
        ({}, {"stale": 1}, "trainer.stale"),
        ({"evaluation": SimpleNamespace(keep="best")}, {}, "evaluation.keep"),
    ],
)
def test_what_cannot_be_sharded_is_refused_by_the_config_alone(
    stage: dict[str, Any], args: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Any = SimpleNamespace(**{"critic": None, "evaluation": None, **stage})
    check_sharding(whole, SimpleNamespace(**args))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(RlmError, match=problem):
        check_sharding(whole, SimpleNamespace(**args))
    separate: Any = SimpleNamespace(critic=Critic(kind="separate"), evaluation=None)
    check_sharding(separate, SimpleNamespace())
    monkeypatch.setattr("rlm_plugins.trainer.options.is_deepspeed_zero3_enabled", lambda: True)
    with pytest.raises(RlmError, match=r"critic\.kind.*ZeRO-3 partitions"):
        check_sharding(separate, SimpleNamespace())
