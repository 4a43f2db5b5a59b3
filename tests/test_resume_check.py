"""`rlm doctor RECIPE` and `rlm doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from fault_cases import recipe
from rlm_lab.resume_check import STEPS, render, resume_check, stand_in
from typer.testing import CliRunner

from rlm_plugins import recipe as recipes
from rlm_plugins.cli import app

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
