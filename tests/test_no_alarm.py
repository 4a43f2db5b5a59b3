"""Diagnosis without false alarms: every algorithm of recipes/, shortened, on one small model that can add."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_run import CANNED, OTHERS, PAPERS, small_teacher
from rich.console import Console
from rlm_lab.why import why
from test_sick_runs import start  # noqa: F401

from rlm_plugins import recipe
from rlm_plugins.builtin.environments import addition
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train

pytestmark = pytest.mark.full

KEPT = "num_generations max_grad_norm adam_beta2 temperature top_p top_k num_iterations target_kl".split()  # noqa: SIM905
SIZES = {"max_steps": 8, "per_device_train_batch_size": 32, "gradient_accumulation_steps": 1, "learning_rate": 5e-4}
ALWAYS = {"lr_scheduler_type": "constant", "gradient_checkpointing": False, "save_strategy": "no"}
EXAMPLES = {"digits": 2, "train_rows": 256, "test_rows": 0}
SUPERVISED = ("sft", "dft", "reward_model")
PACKAGES = Path(__file__).parent / "paper_packages.py"
WITH_TURNS = ("gigpo", "arpo", "echo")
"""Recipes that require an environment of several turns."""
GAME = {"name": "guess", "guesses": 2, "highest": 40}
FROM_LOGPROBS = ("flash_rl", "reinforce_pp_baseline")
"""Recipes that require log-probs of an inference engine: those of fake rollouts."""
FROM_SAMPLER = ("flash_reinforce", "mopd", "kpop", "dppo_tv", "dppo_kl", "m2po")
"""Recipes that require log-probs of the policy that sampled: one step old."""


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small model that plays a game of two turns, imperfectly."""
    folder = tmp_path_factory.mktemp("player") / "run"
    stage = {
        "model": {"name": "scratch", "hidden": 64, "intermediate": 256, "characters": "0123456789+- no"},
        "environment": {**GAME, "show": "moves", "skill": 0.4, "test_rows": 4},
        "algorithm": "sft",
        "trainer": {"max_steps": 200, "per_device_train_batch_size": 32, "learning_rate": 3e-3, **ALWAYS},
        "evaluation": None,
        "plugins": {"load": [str(PACKAGES)]},
    }
    found = recipe.of_mapping(stage)
    train(found, Registry(found.load), folder, console=Console(quiet=True))
    return folder / "01-sft" / "model"


def cut_down(file: Path, model: Path) -> dict[str, Any]:
    """Return the last stage of a recipe on the small model: its algorithm, rewards and critic, with small sizes."""
    found = recipe.load(file)
    body = found.bodies[-1]
    name = body["algorithm"]["name"]
    given = {key: value for key, value in body["trainer"].items() if key in KEPT}
    trainer: dict[str, Any] = {**SIZES, **ALWAYS, **given}
    if name not in SUPERVISED:
        trainer["num_generations"] = 1 if given.get("num_generations") == 1 else 8
        trainer["max_completion_length"] = 48
        trainer["steps_per_generation"] = 2 if body["trainer"].get("steps_per_generation", 1) > 1 else 1
    stage = {
        "model": {"name": str(model), "lora": {"r": 8, "target_modules": "all-linear"}},
        "algorithm": body["algorithm"],
    }
    stage |= {"environment": {"name": "addition", **EXAMPLES}, "trainer": trainer}
    stage |= {"callbacks": [], "evaluation": None}
    if name == "reward_model":
        stage["environment"] = {"name": "gist", "train_rows": 256, "test_rows": 0}
        stage["model"] = {"name": "scratch", "hidden": 32, "layers": 1, "heads": 2, "intermediate": 32}
    elif file.stem in WITH_TURNS:
        stage["environment"], stage["rewards"] = {**GAME, "test_rows": 4}, body["rewards"]
    elif name not in SUPERVISED:
        stage["rewards"] = body["rewards"] if body["environment"]["name"] == "addition" else ["accuracy"]
    if "teacher" in body:
        stage["teacher"] = small_teacher(file, body)
        if all(reward.get("weight") == 0 for reward in body["rewards"]):
            stage["rewards"] = []
    if "critic" in body:
        stage["critic"] = {**body["critic"], "warmup_steps": 1, "learning_rate": 5e-3}
    if file.stem in FROM_SAMPLER:
        trainer["stale"] = 1
    if file.stem in FROM_LOGPROBS:
        stage["algorithm"] = {**body["algorithm"], "rollouts": [{"name": "canned", "logprob": -4.5}]}
        stage["rewards"] = [{"name": "coin", "as": "accuracy"}]
        small = {"layers": 1, "hidden": 16, "heads": 2, "intermediate": 32}
        stage["model"] = {"name": "scratch", **small, "lora": {"r": 2}}
    plugins = [*map(str, found.load), str(PACKAGES), *([str(CANNED)] if file.stem in FROM_LOGPROBS else [])]
    return {**stage, "plugins": {"load": plugins}}


@pytest.mark.parametrize(
    "file", [f for f in (*PAPERS, *OTHERS) if f.stem not in ("rlhf", "over_optimisation")], ids=lambda f: f.stem
)
def test_no_alarm(file: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    document = cut_down(file, request.getfixturevalue("player" if file.stem in WITH_TURNS else "start"))
    pool = [
        {"prompt": e["prompt"], "completion": e["demonstration"], "reward": 1.0} for e in addition(**EXAMPLES).train
    ]
    Path("successes.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in pool))
    found = recipe.of_mapping(document)
    train(found, Registry(found.load), tmp_path / "run", console=Console(quiet=True))
    assert [each["name"] for entry in why(tmp_path / "run") for each in entry["findings"] if each["severity"] > 1] == []


@pytest.mark.parametrize("name", ["rlhf", "over_optimisation"])
def test_no_alarm_in_a_pipeline(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    (file,) = (f for f in OTHERS if f.stem == name)
    steps = [150, 40, 8]
    changes = [f"stages.{n}.trainer.max_steps={count}" for n, count in enumerate(steps)]
    changes += [f"stages.{n}.evaluation=null" for n in range(len(steps))]
    found = recipe.load(file, changes)
    train(found, Registry(found.load), tmp_path / "run", console=Console(quiet=True))
    assert [each["name"] for entry in why(tmp_path / "run") for each in entry["findings"] if each["severity"] > 1] == []
