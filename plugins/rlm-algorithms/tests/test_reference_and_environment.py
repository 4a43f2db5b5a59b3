"""A*-PO samples from the policy without its adapter; ECHO reads what the environment wrote; wrapped environments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rlm_algorithms.wrapped_environments import budgets, held_out_questions

from rlm_plugins import recipe
from rlm_plugins.errors import RecipeError
from rlm_plugins.models.adapters import sequence_logprobs
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.stage import RunState
from rlm_plugins.trainer.observer import StepObserver

RECIPE = """
model: {name: scratch, hidden: 16, layers: 1, characters: "0123456789+-=? no", lora: {r: 2, target_modules: all-linear}}
environment: {name: addition, digits: 1, train_rows: 8, test_rows: 0}
rewards: [accuracy]
algorithm: a2po
trainer: {max_steps: 2, per_device_train_batch_size: 8, num_generations: 1, max_completion_length: 6}
"""
SUMS = """
from rlm_plugins import hookimpl
from rlm_plugins.specs import Environment, EnvironmentSpec

class Sums(Environment):
    turns = 3

    def reset(self, **columns):
        return ""

    def step(self, action):
        return f"{len(action)}+1=", float(action[:1].isdigit()), False

@hookimpl
def rlm_environments():
    rows = [{"prompt": f"{n}="} for n in range(8)]
    return {"sums": lambda: EnvironmentSpec(train=rows, test=rows, environment=Sums)}
"""


def build(folder: Path, *overrides: str) -> Any:
    (folder / "recipe.yaml").write_text(RECIPE)
    loaded = recipe.load(folder / "recipe.yaml", overrides)
    (stage,) = compose(loaded, Registry(load=loaded.load))
    return stage.trainer.build(stage, RunState())


@pytest.mark.parametrize("generator", ["none", "fast"])
def test_values_come_from_the_policy_without_its_adapter(tmp_path: Path, generator: str) -> None:
    trainer = build(tmp_path, f"generator={generator}")
    part = trainer.equation.advantage.target
    prompts = [trainer.train_dataset[row]["prompt"] for row in range(4)]
    tools = trainer.components.scoring.tools
    before = tools.generate(prompts, greedy=True)
    for name, weight in trainer.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    assert tools.generate(prompts, greedy=True) != before
    with part.reference():
        assert tools.generate(prompts, greedy=True) == before
    trainer.train()
    assert set(part.values) <= set(range(8))
    assert all(0 <= value <= 1 for value in part.values.values())
    with pytest.raises(RecipeError, match="all weights are trained"):
        build(tmp_path, "model.lora=null")


class Kept(StepObserver):
    """Keeps the inputs of the first micro-batch."""

    inputs: Mapping[str, Any] | None = None

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        self.inputs = self.inputs or dict(inputs)


@pytest.mark.parametrize("speed", ["none", "{}"])
def test_echo_learns_from_the_answers_of_the_environment(tmp_path: Path, speed: str) -> None:
    (tmp_path / "sums.py").write_text(SUMS)
    settings = ["plugins={load: [./sums.py]}", "environment=sums", "rewards=[episode_return]", "algorithm=echo"]
    settings += ["trainer.num_generations=4", "trainer.max_completion_length=40", "trainer.max_steps=1"]
    trainer = build(tmp_path, *settings, f"speed={speed}", "trainer.learning_rate=1e-9")
    kept = Kept()
    trainer.observe([kept])
    trainer.train()
    assert kept.inputs is not None
    answers = kept.inputs["completion_mask"].bool() & ~kept.inputs["mask"].bool()
    expected = []
    for n, row in enumerate(answers):
        prompt = kept.inputs["prompt_ids"][n][kept.inputs["prompt_mask"][n].bool()].tolist()
        completion = kept.inputs["completion_ids"][n][kept.inputs["completion_mask"][n].bool()].tolist()
        logp = sequence_logprobs(trainer.model, [[*prompt, *completion]])[0][len(prompt) - 1 :]
        expected.append(-logp[row[: len(completion)]])
    assert torch.cat(expected).numel() > 8
    logged = next(line for line in trainer.state.log_history if "penalties/environment_nll" in line)
    assert logged["penalties/environment_nll"] == pytest.approx(torch.cat(expected).mean().item(), rel=1e-4)
    with pytest.raises(RecipeError, match="requires `observation_mask`, but 'addition' is a single-turn"):
        build(tmp_path, "algorithm=echo", "trainer.num_generations=4")


def test_held_out_questions_are_the_training_questions() -> None:
    spec = held_out_questions(base="addition", knobs={"test_rows": 9}, rows=4)
    assert len(spec.train) == 4
    assert list(spec.train) == list(spec.test)
    with pytest.raises(RecipeError, match="'addition' has no held-out examples"):
        held_out_questions(base="addition", knobs={"test_rows": 0})


def test_budget_is_in_prompt_and_column() -> None:
    knobs = {"train_rows": 200, "test_rows": 3}
    spec = budgets(base="addition", knobs=knobs, low=5, high=7, text=" in {tokens}")
    assert {row["target_length"] for row in spec.train} == {5, 6, 7}
    for row in [*spec.train, *spec.test]:
        assert row["prompt"][-1]["content"].endswith(f"=? in {row['target_length']}")
    assert spec == budgets(base="addition", knobs=knobs, low=5, high=7, text=" in {tokens}")
    coarse = budgets(base="addition", knobs=knobs, low=5, high=10, step=2)
    assert {row["target_length"] for row in coarse.train} == {5, 7, 9}
    with pytest.raises(RecipeError, match="got low 8 above high 7"):
        budgets(base="addition", low=8, high=7)
    with pytest.raises(RecipeError, match="does not say how many tokens"):
        budgets(base="addition", text="briefly")
