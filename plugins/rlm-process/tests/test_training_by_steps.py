"""The algorithms in training, from a recipe: required data, and logged costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlm_plugins.cli import app

RECIPE = """
plugins: {{load: [./scores.py]}}
environment: {environment_spec}
rewards: [{reward}]
model: {{name: scratch, layers: 1, hidden: 32, heads: 2, intermediate: 64}}
algorithm: {algorithm}
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
from rlm_plugins.specs import Environment
from rlm_plugins.specs import EnvironmentSpec

def sevens(completions):
    return [said.count("7") / 4 for said in completions]

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
def rlm_rewards():
    return {"sevens": sevens}

@hookimpl
def rlm_environments():
    return {"asked_thrice": asked_thrice}
"""
SUMS = "{name: addition, digits: 1, test_rows: 2}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a folder with the installed package and a reward that an untrained model can get."""
    info = tmp_path / "rlm_process-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlm-process\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[rlm]\nprocess = rlm_process\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scores.py").write_text(SCORES)
    return tmp_path


def trained(
    folder: Path, algorithm: str, *, environment_spec: str = SUMS, reward: str = "sevens"
) -> list[dict[str, Any]]:
    """Train for two steps and return the log."""
    (folder / "recipe.yaml").write_text(
        RECIPE.format(environment_spec=environment_spec, reward=reward, algorithm=algorithm)
    )
    for command in (["check", "recipe.yaml"], ["train", "recipe.yaml", "--name", "run"]):
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    (log,) = folder.glob("runs/run/**/metrics.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


def column(log: list[dict[str, Any]], name: str) -> list[Any]:
    return [line[name] for line in log if name in line]


@pytest.mark.full
@pytest.mark.slow
def test_vine_trains(folder: Path):
    knobs = "{steps: {every: 5}, continuations: 2, whiten: false}"
    log = trained(
        folder, f"{{name: vine_ppo, advantage: {knobs}, shapers: [{{name: step_labels, steps: {{every: 5}}}}]}}"
    )
    encode, steps = column(log, "advantage/continuations"), column(log, "advantage/steps")
    assert len(encode) == 2
    assert all(
        2 * 2 <= n <= 2 * 16 * 3 and n % 2 == 0 for n in encode
    )  # two prompts at least, three states a row at most
    assert all(1 <= n <= 3 for n in steps)
    assert all(0 < x < 1 for x in column(log, "advantage/shared_states"))
    assert all(0 <= x <= 1 for x in column(log, "shapers/label"))
    assert max(column(log, "advantage/nonzero")) > 0.5


@pytest.mark.full
@pytest.mark.slow
def test_tree_trains(folder: Path):
    log = trained(folder, "{name: tree, rollouts: [{name: tree, steps: {every: 3}}]}")
    assert column(log, "sources/tree/share") == [1.0, 1.0]
    assert max(column(log, "advantage/nonzero")) > 0.5
    (samples,) = folder.glob("runs/run/**/samples.jsonl")
    rows = [json.loads(line)["completion"] for line in samples.read_text().splitlines()][:8]
    texts = [row if isinstance(row, str) else row[-1]["content"] for row in rows]
    assert len({text[:3] for text in texts}) < len({*texts})  # they begin alike


@pytest.mark.slow
def test_turn_rewards_train(folder: Path):
    shapers = f"[by_turn, {{name: per_turn, by: '{folder}/scores.py:digits'}}]"
    reward = "{name: episode_return, weight: 0}"
    log = trained(folder, f"{{name: gigpo, shapers: {shapers}}}", environment_spec="asked_thrice", reward=reward)
    paid, shaped = column(log, "rewards/episode_return/mean"), column(log, "shapers/reward")
    # Every turn that the world paid 1 for the function pays a quarter more, and that of a turn which was cut off too.
    assert all(1.25 * p - 1e-6 <= r <= p + 0.75 for p, r in zip(paid, shaped, strict=True))
    assert max(paid) > 0
    assert max(column(log, "advantage/nonzero")) > 0.5


@pytest.mark.parametrize("name", ["steps"])
def test_recipes_pass_check(folder: Path, name: str):
    recipe = Path(__file__).parents[1] / "recipes" / f"{name}.yaml"
    result = CliRunner().invoke(app, ["check", str(recipe)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
