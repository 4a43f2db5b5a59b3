"""When checkpoints are saved, what they hold, `rlm doctor RECIPE`, and a run that is interrupted before its first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from fault_cases import recipe
from fixtures_trainer import OFTEN, REGISTRY, clipped, trainer
from rlm_lab.resume_check import STEPS, render, resume_check, stand_in
from typer.testing import CliRunner

from rlm_plugins import recipe as recipes
from rlm_plugins.cli import app
from rlm_plugins.errors import PartError
from rlm_plugins.registry.part import Part
from rlm_plugins.trainer import EquationTrainer
from rlm_plugins.trainer.checkpoint import PartState, SaveWhenBufferIsEmpty, checkpoints


class RunningBaseline:
    """Stateful advantage: the baseline is the mean of all rewards so far."""

    def __init__(self, *, decay: float = 0.5) -> None:
        self.decay, self.mean = decay, 0.0

    def __call__(self, rewards: torch.Tensor) -> torch.Tensor:
        self.mean = self.decay * self.mean + (1 - self.decay) * rewards.mean().item()
        return rewards - self.mean

    def state_dict(self) -> dict[str, float]:
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.mean = state["mean"]


def stateful_trainer(folder: Path, **changes: Any) -> EquationTrainer:
    equation = clipped(advantage=Part("rlm_advantages", "running", "test", RunningBaseline).bind({}))
    return trainer(folder, equation, **OFTEN, **changes)


def test_oldest_checkpoints_beyond_the_limit_are_deleted(tmp_path: Path) -> None:
    stateful_trainer(tmp_path, max_steps=11, save_total_limit=2).train()
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-10", "checkpoint-11"]
    assert not (tmp_path / ".saving").exists()


def test_saves_wait_until_the_buffer_is_empty() -> None:
    callback = SaveWhenBufferIsEmpty()
    args = SimpleNamespace(steps_per_generation=4, num_iterations=1, gradient_accumulation_steps=1)
    saved = []
    for step in range(1, 11):
        control = SimpleNamespace(should_save=step in (1, 6))
        callback.on_step_end(args, SimpleNamespace(global_step=step), control)
        saved += [step] if control.should_save else []
    assert saved == [4, 8]


class Odd(RunningBaseline):
    """Advantage with a state that no checkpoint can save."""

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "how": self.how}


@pytest.mark.parametrize("how", [lambda x: x, Path("here")], ids=["pickle", "weights only"])
def test_unsaveable_part_state_names_its_part(how: Any) -> None:
    """A path can be pickled, but is refused when the run is resumed."""
    part = Part("rlm_advantages", "odd", "guest", Odd).bind({})
    part.target.how = how  # type: ignore[attr-defined]
    with pytest.raises(PartError, match=r"(?s)guest/odd.*state_dict cannot be kept in a checkpoint.*allowed: numbers"):
        PartState(part).check()


def test_unsaveable_state_is_reported_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunningBaseline, "state_dict", lambda self: {"mean": self})
    equation_trainer = stateful_trainer(tmp_path)
    with pytest.raises(PartError, match="test/running"):
        equation_trainer.train()
    assert equation_trainer.state.global_step == 0


@pytest.mark.parametrize("looks", [False, True], ids=["by row", "looks at the whole step"])
def test_interrupted_run_without_checkpoint_restarts(
    looks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C inside a step, as in a notebook, no completion of that step is trained on."""
    term = replace(REGISTRY.find("rlm_penalties", "kl_cov").bind({"share": 0.5}), options={"beta": 1.0})
    equation, size = clipped(penalties=[term] * looks), {"per_device_train_batch_size": 4, "num_generations": 4}
    equation_trainer = trainer(tmp_path, equation, max_steps=2, gradient_accumulation_steps=2, **size)
    step, done = ["writes", "learns", "learns"], []
    write, learn = equation_trainer._generate_single_turn, equation_trainer.components.loss.of_portion

    def writes(*args: Any, **options: Any) -> Any:
        done.append("writes")
        return write(*args, **options)

    def learns(*args: Any) -> torch.Tensor:
        done.append("learns")
        if done == step:
            raise KeyboardInterrupt
        return learn(*args)

    monkeypatch.setattr(equation_trainer, "_generate_single_turn", writes)
    monkeypatch.setattr(equation_trainer.components.loss, "of_portion", learns)
    with pytest.raises(KeyboardInterrupt):
        equation_trainer.train()
    equation_trainer.train()
    assert done == step * 3
    assert not equation_trainer.components.loss.batches._pending


FORGETFUL = """
from rlm_plugins import hookimpl

class Forgetful:
    def __init__(self):
        self.calls = 0

    def __call__(self, completion_ids):
        self.calls += 1
        return [float(self.calls % 3 * ids[0] % 5) for ids in completion_ids]

@hookimpl
def rlm_rewards():
    return {"forgetful": Forgetful}
"""


@pytest.mark.slow
def test_a_recipe_with_a_critic_resumes_to_the_bit(tmp_path: Path) -> None:
    results = resume_check(recipe(tmp_path, "critic"), [], at=[2])
    assert results == [{"stage": "01-ppo", "step": 2, "equal": True, "differs": []}]
    assert render(results) == "1 of 1 interruptions end with equal bytes"


@pytest.mark.slow
def test_a_recipe_that_keeps_the_best_checkpoint_resumes_to_the_bit(tmp_path: Path) -> None:
    file = recipe(tmp_path)
    body = yaml.safe_load(file.read_text())
    body["evaluation"] |= {"every": 4, "keep": "best", "stop": 3}
    file.write_text(yaml.safe_dump(body))
    assert [result["equal"] for result in resume_check(file, [], at=[2])] == [True]


@pytest.mark.slow
def test_a_part_whose_state_is_lost_is_found(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(FORGETFUL)
    file = recipe(tmp_path)
    body = yaml.safe_load(file.read_text()) | {"plugins": {"load": ["part.py"]}, "rewards": ["forgetful"]}
    file.write_text(yaml.safe_dump({key: value for key, value in body.items() if key != "evaluation"}))
    done = CliRunner().invoke(app, ["doctor", str(file), "--at", "2", "--json"])
    assert done.exit_code == 1, done.output
    (result,) = json.loads(done.stdout)
    assert "01-grpo/model/model.safetensors" in result["differs"]


@pytest.mark.parametrize(
    "name", ["papers/dapo.yaml", "papers/ppo.yaml", "pipelines/rlhf.yaml", "lessons/06-format.yaml"]
)
def test_the_stand_in_keeps_algorithm_and_data(name: str) -> None:
    published = recipes.load(Path(__file__).parents[1] / "recipes" / name)
    document = stand_in(published)
    bodies = document.get("stages", [document])
    assert [body["algorithm"] for body in bodies] == [body["algorithm"] for body in published.bodies]
    assert [body["environment"] for body in bodies] == [body["environment"] for body in published.bodies]
    assert [body["trainer"]["max_steps"] for body in bodies] == [STEPS] * len(bodies)
    assert bodies[0]["model"]["name"] == "scratch"


def test_doctor_reports_versions_plugins_and_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLM_JUDGE_KEY", "secret-of-a-user")
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout[done.stdout.index("{") :])
    assert {"trl", "torch", "transformers"} <= {row["name"] for row in report["versions"]}
    assert not any(row["problem"] for row in report["versions"])
    assert next(row["state"] for row in report["plugins"] if row["name"] == "builtin") == "ok"
    assert all(row["free_gib"] > 0 for row in report["disk"])
    text = CliRunner().invoke(app, ["doctor"]).output
    assert "versions (installed, tested)" in text
    assert "secret-of-a-user" not in text + done.output
