"""Two processes on the CPU: the same loss as one on the same global batch, and a run that goes through."""

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
from safetensors.torch import load_file

ROOT = Path(__file__).parents[1]
LESSON = ROOT / "recipes" / "lessons" / "01-addition.yaml"
REFILLED = "algorithm.filters=[{name: accuracy_band, reward: digits, low: 0.03, high: 1.0, refill: 9}]"
pytestmark = pytest.mark.slow


def launch(recipe: Path, folder: Path, processes: int, *overrides: str) -> Path:
    """`rlm train`, under `accelerate launch` when there are several processes."""
    door = [sys.executable, "-m"]
    if processes > 1:
        options = ["--multi_gpu", "--num_processes", str(processes), "--num_machines", "1", "--mixed_precision", "no"]
        door += ["accelerate.commands.launch", *options, "--dynamo_backend", "no", "--main_process_port", "0", "-m"]
    command = [*door, "rlm_plugins", "train", str(recipe), "--out", str(folder), *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(command, cwd=folder.parent, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return folder


def logged(folder: Path, step: int = 1, stage: str = "") -> dict[str, float]:
    """What a run of one stage, or the stage with such a name, says of an optimiser step."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return next(line for line in lines if line["step"] == step and "loss" in line and line["stage"].endswith(stage))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart's supervised stage, cut short: a start both sides share."""
    folder = tmp_path_factory.mktemp("start")
    recipe = yaml.safe_load(LESSON.read_text())
    recipe["stages"] = recipe["stages"][:1]
    file = folder / "start.yaml"
    file.write_text(yaml.safe_dump(recipe))
    return launch(file, folder / "run", 1, "stages.0.trainer.max_steps=30") / "01-sft" / "model"


def reinforcement(folder: Path, start: Path, *, canned: bool) -> Path:
    """The quickstart's second stage as a recipe of its own, on canned completions or on its own."""
    recipe = yaml.safe_load(LESSON.read_text())
    body = {**{k: v for k, v in recipe.items() if k != "stages"}, **recipe["stages"][1]}
    body["model"] = {"name": "pretrained", "path": str(start), **body["model"]}
    body["trainer"] = {**body["trainer"], "learning_rate": 5e-4, "max_steps": 2, "save_strategy": "no"}
    if canned:
        body["plugins"] = {"load": [str(ROOT / "tests" / "canned.py")]}
        body["algorithm"]["rollouts"] = ["canned"]
        body["rewards"] = ["digits", "accuracy"]
        body["evaluation"] = {"metric": "digits", "rows": 8, "max_new_tokens": 4}
    else:
        body["evaluation"] = {"metric": "accuracy", "rows": 16, "max_new_tokens": 8}
    file = folder / "rl.yaml"
    file.write_text(yaml.safe_dump(body))
    return file


SOURCES = (
    "algorithm.rollouts=[{name: greedy, rows: 1}, {name: demonstrations, rows: 1}, canned]",
    "algorithm.penalties=[{name: policy_shaping, beta: 1.0, source: demonstrations}]",
)
"""One process holds the greedy row and the demonstration, where the group is cut the other one neither."""


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("algorithm.penalties=[{name: kl, beta: 0.05}]", "algorithm.aggregator=sequence_mean"),
        ("algorithm.advantage=batch_whitened", "algorithm.filters=[nonzero_spread]"),
        (REFILLED, "algorithm.penalties=[{name: kl, beta: 0.05}]"),
        (REFILLED.replace("refill: 9", "refill: 2"), "algorithm.advantage=batch_whitened"),
        ("algorithm={name: gepo, rollouts: [canned]}",),
        SOURCES,
        (*SOURCES, "trainer.num_generations=64"),
    ],
    ids=["lesson", "kl-sequence-mean", "whitened-filtered", "refilled", "not-full", "gepo", "sources", "group-cut"],
)
def test_first_step_equals_one_process(tmp_path: Path, start: Path, overrides: tuple[str, ...]) -> None:
    recipe = reinforcement(tmp_path, start, canned=True)
    one = logged(launch(recipe, tmp_path / "one", 1, *overrides))
    halves = "trainer.per_device_train_batch_size=32"
    two = logged(launch(recipe, tmp_path / "two", 2, halves, *overrides))
    assert one["grad_norm"] > 1e-3, "nothing to compare"
    for name in ("loss", "grad_norm", "reward", "entropy", "advantage/abs_mean"):
        assert two[name] == pytest.approx(one[name], rel=2e-5, abs=1e-7), name
    if "refill/draws" in one:
        assert one["refill/draws"] > 1
        assert {name: two[name] for name in one if "refill" in name} == {n: one[n] for n in one if "refill" in n}


@pytest.mark.parametrize(
    "term",
    [
        "algorithm.token_weights=[{name: clip_cov, share: 0.2, low: 0.0}]",
        "algorithm.token_weights=[{name: top_entropy, share: 0.4}]",
        "algorithm.penalties=[{name: kl_cov, beta: 1.0, share: 0.2}]",
    ],
    ids=["clip-cov", "top-entropy", "kl-cov"],
)
def test_statistics_of_the_step_are_those_of_all(tmp_path: Path, start: Path, term: str) -> None:
    """Two processes of two micro-batches against one of one, each generation used twice (on policy KL-Cov is 0)."""
    recipe = reinforcement(tmp_path, start, canned=True)
    shared = (term, "trainer.num_iterations=2", "trainer.optim=sgd", "trainer.learning_rate=0.1")
    one = launch(recipe, tmp_path / "one", 1, *shared)
    quarters = ("trainer.per_device_train_batch_size=16", "trainer.gradient_accumulation_steps=2")
    two = launch(recipe, tmp_path / "two", 2, *quarters, *shared)
    for step in (1, 2):
        expected, found = (logged(folder, step) for folder in (one, two))
        assert expected["grad_norm"] > 1e-3, "nothing to compare"
        for name in ("loss", "grad_norm", "entropy"):
            assert found[name] == pytest.approx(expected[name], rel=5e-5, abs=1e-6), (step, name)


def test_what_is_remembered_equals_one_process(tmp_path: Path, start: Path) -> None:
    """SPO on as many problems as a generation takes: the second step reads every first answer again."""
    recipe = reinforcement(tmp_path, start, canned=True)
    spo = (
        "algorithm={name: spo, rollouts: [{name: canned, longest: 7}]}",
        "trainer.num_generations=1",
        "environment.train_rows=64",
    )
    one = launch(recipe, tmp_path / "one", 1, *spo)
    two = launch(recipe, tmp_path / "two", 2, "trainer.per_device_train_batch_size=32", *spo)
    for step in (1, 2):
        expected, found = (logged(folder, step) for folder in (one, two))
        assert expected["grad_norm"] > 1e-3, "nothing to compare"
        for name in ("loss", "grad_norm", "reward", "entropy", "advantage/abs_mean"):
            assert found[name] == pytest.approx(expected[name], rel=2e-4, abs=1e-6), (step, name)


CRITICS: dict[str, dict[str, Any]] = {
    "shared": {"algorithm": {"name": "ppo"}},
    "head": {"algorithm": {"name": "vapo", "penalties": {"nll": {"threshold": 0.1}}}},
    "separate": {"algorithm": {"name": "orz"}, "trainer": {"target_kl": 1e-9}},
}
"""Kind of critic → what its stage says of its own: one each for KL in the reward, λ by length, the early stop."""
OF_STEPS = ("loss", "grad_norm", "reward", "shapers/reward", "advantage/abs_mean", "update/kl", "update/passed_over")
OF_CRITICS = ("value", "return", "explained_variance", "grad_norm", "learning_rate")
OF_MICRO_BATCHES = ("penalties/value_loss", "penalties/value_clipped")


def test_critics_learn_as_with_one_process(tmp_path: Path, start: Path) -> None:
    """Every kind as a stage of one run, each generation used twice; the last on two micro-batches per process."""
    body = yaml.safe_load(reinforcement(tmp_path, start, canned=True).read_text())
    trainer = {**body["trainer"], "num_iterations": 2, "max_steps": 3, "optim": "sgd", "learning_rate": 0.02}
    stages: list[dict[str, Any]] = []
    for kind, own in CRITICS.items():
        stage = {
            "name": kind,
            "critic": {"kind": kind, "learning_rate": 1e-3},
            "trainer": trainer | own.get("trainer", {}),
        }
        stage["algorithm"] = {**own["algorithm"], "rollouts": ["canned"]}
        stage["model"] = {"lora": body["model"]["lora"]} if stages else body["model"]
        stages.append(stage)
    recipe = tmp_path / "critics.yaml"
    both = {key: body[key] for key in ("environment", "rewards", "evaluation", "plugins")}
    recipe.write_text(json.dumps({**both, "stages": stages}))
    halves = [f"stages.{i}.trainer.per_device_train_batch_size={size}" for i, size in enumerate((32, 32, 16))]
    halves += ["stages.2.trainer.gradient_accumulation_steps=2"]
    one, two = launch(recipe, tmp_path / "one", 1), launch(recipe, tmp_path / "two", 2, *halves)
    compared: set[str] = set()
    for number, kind in enumerate(CRITICS, 1):
        names = [*OF_STEPS, *(f"critic/{name}" for name in OF_CRITICS)]
        names += OF_MICRO_BATCHES if kind != "separate" else ()  # accumulated, these are means of means
        for step in (1, 2, 3):
            expected, found = (logged(folder, step, kind) for folder in (one, two))
            assert expected["critic/grad_norm"] > 1e-3, "nothing to compare"
            for name in {*names} & {*expected}:
                compared.add(name)
                assert found[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6), (kind, step, name)
        assert logged(two, 3, kind)["critic/explained_variance"] != 0
        for file in sorted((one / f"0{number}-{kind}" / "critic").glob("*.safetensors")):
            weights, others = load_file(file), load_file(two / file.relative_to(one))
            assert max(x.abs().max() for x in weights.values()) > 1e-3
            for name, x in weights.items():
                torch.testing.assert_close(others[name], x, rtol=1e-3, atol=1e-5)
    assert len(compared) == len(OF_STEPS) + len(OF_CRITICS) + len(OF_MICRO_BATCHES)
    assert [logged(two, step, "separate")["update/passed_over"] for step in (1, 2, 3)] == [0.0, 1.0, 0.0]


def test_the_lesson_runs_on_two(tmp_path: Path, start: Path) -> None:
    recipe = reinforcement(tmp_path, start, canned=False)
    folder = launch(recipe, tmp_path / "run", 2, "trainer.per_device_train_batch_size=32")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["held_out_rows"] == 16
    assert (folder / "01-dapo" / "adapter" / "adapter_model.safetensors").exists()
    assert len(set((folder / "metrics.jsonl").read_text().splitlines())) >= 4
