"""FSDP2 and DeepSpeed on two processes of the CPU: the numbers of one process, whole results, and refusals."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from launch_runs import ROOT, logged, python, reinforcement, supervised
from safetensors.torch import load_file
from train_several import Job, train_all

from rlm_plugins.errors import RlmError
from rlm_plugins.stage import Critic
from rlm_plugins.trainer.options import check_sharding

LAUNCH = ROOT / "plugins" / "rlm-lab" / "src" / "rlm_lab" / "accelerate_configs"
SHORT = (
    "max_steps=3",
    "optim=sgd",
    "lr_scheduler_type=linear",
    "learning_rate=0.1",
    "num_iterations=2",
    "save_strategy=steps",
    "save_steps=2",
)
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
ADAM = ("trainer.optim=adamw_torch", "trainer.learning_rate=0.0001")
SHARDED = {"fsdp2": "", "zero2": "deepspeed", "zero3": "deepspeed"}
"""Config of accelerate → package that it requires."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train every case on one process, and return a folder with the recipe."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("sharded")
    recipe = str(reinforcement(folder, supervised(folder), canned=True))
    train_all([(recipe, str(folder / "one" / name), [*BOTH, *case]) for name, case in CASES.items()])
    return folder


def launch(folder: Path, config: str, jobs: list[Job], processes: int = 2) -> None:
    """Train jobs on processes that a config of accelerate shards."""
    (folder / f"{config}.json").write_text(json.dumps(jobs))
    program = (str(ROOT / "tests" / "sharded_runs.py"), str(folder / f"{config}.json"))
    python(processes, *program, cwd=folder, config=LAUNCH / f"{config}.yaml")


@pytest.fixture
def config(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a config of accelerate whose package is installed, in the environment that its processes need."""
    if SHARDED[request.param] and importlib.util.find_spec(SHARDED[request.param]) is None:
        pytest.skip(f"{SHARDED[request.param]} is not installed")
    monkeypatch.chdir(folder)  # a run's folder may be relative
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]))
    return str(request.param)


def cases(config: str) -> dict[str, tuple[str, ...]]:
    """Return the cases that a config of accelerate trains: ZeRO-3 has no critic."""
    return {name: case for name, case in CASES.items() if (config, name) != ("zero3", "ppo")}


def numbers(run: Path) -> list[tuple[float, float]]:
    """Return loss and gradient norm of each step of a run."""
    return [(line["loss"], line["grad_norm"]) for line in (logged(run, step) for step in range(1, 4))]


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the result of a run."""
    (file,) = [*run.glob("01-*/adapter/*.safetensors"), *run.glob("01-*/model/*.safetensors")]
    return load_file(file)


@pytest.mark.slow
@pytest.mark.parametrize("config", SHARDED, indirect=True)
def test_two_processes_that_shard_train_as_one(folder: Path, config: str) -> None:
    recipe, runs = str(folder / "rl.yaml"), folder / config
    launch(folder, config, [(recipe, str(runs / n), [*BOTH, *HALVES, *case]) for n, case in cases(config).items()])
    for name in cases(config):
        one, two = ((numbers(run / name), weights(run / name)) for run in (folder / "one", runs))
        torch.testing.assert_close(two, one, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("config", SHARDED, indirect=True)
def test_a_sharded_run_resumes_on_two_processes_and_on_one(folder: Path, config: str) -> None:
    """DeepSpeed shards one process, too; without it, its optimizer state is refused. FSDP takes SGD, which has none."""
    whole, runs, recipe = not SHARDED[config], Path("resumed", config), str(folder / "rl.yaml")
    jobs: list[Job] = [(recipe, str(runs / name), [*BOTH, *case, *ADAM]) for name, case in cases(config).items()]
    jobs += [(recipe, str(runs / f"{name}-sgd"), [*BOTH, *case]) for name, case in CASES.items() if whole]
    halves: list[Job] = [(recipe, run, [*overrides, *HALVES]) for recipe, run, overrides in jobs]
    launch(folder, config, halves)
    expected = {Path(run): (weights(Path(run)), numbers(Path(run))[-1]) for _, run, _ in jobs}
    one = partial(train_all, jobs) if whole else partial(launch, folder, config, jobs, 1)
    for resume in (partial(launch, folder, config, halves), one):
        for run in expected:
            interrupt(run)
        resume()
        for run, before in expected.items():
            torch.testing.assert_close((weights(run), numbers(run)[-1]), before, rtol=2e-5, atol=2e-5)
    if config == "zero2":
        interrupt(runs / "lora")
        with pytest.raises(RlmError, match="the state of the optimizer; DeepSpeed's is loaded by DeepSpeed alone"):
            train_all(jobs[:1])


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
