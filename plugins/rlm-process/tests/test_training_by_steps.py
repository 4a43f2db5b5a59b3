"""Rewards of turns in training, from a recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlm_plugins.cli import app

RECIPE = """
plugins: {load: [./scores.py]}
environment: asked_thrice
rewards: [{name: episode_return, weight: 0}]
model: {name: scratch, layers: 1, hidden: 32, heads: 2, intermediate: 64}
algorithm: {name: gigpo, shapers: [by_turn, {name: per_turn, by: './scores.py:digits'}]}
trainer:
  max_steps: 2
  per_device_train_batch_size: 16
  num_generations: 8
  max_completion_length: 12
  learning_rate: 1e-2
  save_strategy: "no"
  bf16: false
"""
SCORES = """
from rlm_plugins import hookimpl
from rlm_plugins.specs import Environment, EnvironmentSpec

def digits(texts, observations, secret):
    assert len(texts) == len(observations)
    return [0.25 * text[:1].isdigit() for text in texts]

class Sums(Environment):
    turns = 3

    def reset(self, secret):
        return f"{secret}+0="

    def step(self, action):
        return "?", float(action[:1].isdigit()), False

def asked_thrice():
    return EnvironmentSpec(train=[{"prompt": f"{i}", "secret": i} for i in range(8)], environment=Sums)

@hookimpl
def rlm_environments():
    return {"asked_thrice": asked_thrice}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_turn_rewards_train(tmp_path: Path):
    (tmp_path / "scores.py").write_text(SCORES)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    result = CliRunner().invoke(app, ["train", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in log if "shapers/reward" in line]
    # Every turn that the world paid 1 for the function pays a quarter more, and that of a turn which was cut off too.
    for line in steps:
        paid = line["rewards/episode_return/mean"]
        assert 1.25 * paid - 1e-6 <= line["shapers/reward"] <= paid + 0.75
    assert max(line["rewards/episode_return/mean"] for line in steps) > 0
    assert max(line["advantage/nonzero"] for line in steps) > 0.5
