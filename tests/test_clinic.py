"""Runs with one deliberate fault each, which the diagnosis names within ten steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from rlm_lab.why import why

from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.report.check_report import examine
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.train import train

pytestmark = pytest.mark.full

REWARDS = """
from rlm_plugins import hookimpl
from rlm_plugins.builtin.environments import addition


def constant(completions):
    return [0.0 for _ in completions]


def brief(completion_ids):
    return [-len(ids) / 10 for ids in completion_ids]


def solved(completions):
    return [1.0 for _ in completions]


def plain(completions, answer):
    return [float(f">{right}<" in completion) for completion, right in zip(completions, answer)]


def shifted(completions, answer):
    return [3 + score for score in plain(completions, answer)]


def broken(completions):
    raise ValueError("no answer found")


@hookimpl
def rlm_environments():
    def spaced():
        spec = addition(digits=2, train_rows=256, test_rows=8)
        spec.train = [{**row, "answer": f" {row['answer']}  "} for row in spec.train]
        return spec

    return {"spaced": spaced}


@hookimpl
def rlm_rewards():
    rewards = (constant, brief, solved, broken, plain, shifted)
    return {reward.__name__: reward for reward in rewards}
"""
ENVIRONMENT = {"name": "addition", "digits": 2, "test_rows": 8}
FORMAT = {"name": "format", "weight": 0.2}
TRAINER = {
    "max_steps": 10,
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "max_completion_length": 48,
    "learning_rate": 5e-4,
    "lr_scheduler_type": "constant",
    "gradient_checkpointing": False,
    "save_strategy": "no",
}
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "reward that raises": ("failing_reward", {"rewards": [{"name": "broken", "on_error": "zero"}, FORMAT]}),
    "epsilon of 1e-6": ("clipped_update",
        {"algorithm": {"name": "grpo", "policy_loss": {"epsilon": 1e-6}}, "trainer": {"num_iterations": 4}}),
    "tiny coefficient of the KL penalty": ("kl_runaway",
        {"algorithm": {"name": "grpo", "penalties": {"kl": {"beta": 1e-6}}}, "trainer": {"learning_rate": 1.5e-2}}),
    "critic that does not learn": ("critic_lags",
        {"algorithm": "orz", "critic": {"learning_rate": 1e-12}, "rewards": [{"name": "accuracy", "weight": 5.0}]}),
    "weight of 1e-9": ("vanishing_advantage", {"algorithm": "dr_grpo", "rewards": [{"name": "plain", "weight": 1e-9}]}),
}  # fmt: skip
"""Faults whose findings `test_sick_runs` does not have in a run, and no rule on settings or data has."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small model that adds two numbers, imperfectly."""
    return train_start(tmp_path_factory.mktemp("start"))


def train_start(folder: Path) -> Path:
    recipe = {
        "model": {"name": "scratch", "layers": 2, "hidden": 64, "heads": 2, "intermediate": 128},
        "environment": {**ENVIRONMENT, "slip": 0.5},
        "algorithm": "sft",
        "trainer": {"max_steps": 200, "per_device_train_batch_size": 32, "learning_rate": 5e-3},
    }
    return run(recipe, folder / "sft").parent / "sft" / "01-sft" / "model"


def run(recipe: Mapping[str, Any], folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    (folder.parent / "faults.py").write_text(REWARDS)
    path = folder.parent / f"{folder.name}.yaml"
    path.write_text(yaml.safe_dump({**recipe, "plugins": {"load": ["./faults.py"]}}))
    train(*read(path, ()), folder)
    return folder


def stage(start: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    changes = {key: value for key, value in given.items() if key != "lora"}
    lora = {"r": 8, "target_modules": "all-linear", **given.get("lora", {})}
    recipe = {
        "model": {"name": str(start), "lora": lora},
        "environment": ENVIRONMENT,
        "rewards": ["accuracy", FORMAT],
        "algorithm": {"name": "grpo", "penalties": []},
        **changes,
    }
    return {**recipe, "trainer": {**TRAINER, **changes.get("trainer", {})}}


def findings(folder: Path) -> dict[str, int]:
    return {f["name"]: f["severity"] for entry in why(folder) for f in entry["findings"]}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_named(fault: str, start: Path, tmp_path: Path) -> None:
    name, changes = FAULTS[fault]
    assert name in findings(run(stage(start, changes), tmp_path / "run"))


def test_rate_of_the_critic_is_named(start: Path, tmp_path: Path) -> None:
    """The run diverges before its metrics could be diagnosed."""
    with pytest.raises(RlmError, match=r"(?s)diverged.*critic\.learning_rate"):
        run(stage(start, {"algorithm": "ppo", "critic": {"learning_rate": 10.0}}), tmp_path / "run")
    recipe, registry = read(tmp_path / "run.yaml", ())
    (checked,) = (examine(each, registry) for each in compose(recipe, registry))
    assert any(line.startswith("critic_rate_too_large") for line in checked["warnings"])


SOUND: dict[str, dict[str, Any]] = {
    "as above": {},
    "reward with a constant": {"rewards": ["shifted"]},
    "gold answers with spaces": {"environment": {"name": "spaced"}},
    "small KL coefficient": {"algorithm": {"name": "grpo", "penalties": {"kl": {"beta": 0.001}}}},
    "groups of 16": {"trainer": {"num_generations": 16}},
    "temperature of 0.8": {"trainer": {"temperature": 0.8}},
    "two iterations": {"trainer": {"num_iterations": 2}},
    "small adapter": {"lora": {"r": 4, "lora_alpha": 8}, "trainer": {"learning_rate": 1e-3}},
    "format as important": {"rewards": ["accuracy", {"name": "format", "weight": 0.5}]},
    "cosine schedule": {"trainer": {"lr_scheduler_type": "cosine", "warmup_steps": 1}},
}


@pytest.mark.parametrize("changes", SOUND.values(), ids=SOUND)
def test_sound_run_has_no_finding(changes: dict[str, Any], start: Path, tmp_path: Path) -> None:
    found = findings(run(stage(start, changes), tmp_path / "run"))
    assert [name for name, severity in found.items() if severity > 1] == []
