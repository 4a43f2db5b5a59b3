"""The recipes run as they stand, cut short: what is shown is what is played, and is judged as it is trained."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.testing.fake_packages import register

PACKAGE = Path(__file__).parents[1]


@pytest.fixture
def _registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its entry point, also where the tests of the core hide what is installed."""
    register(tmp_path / "site", "rlm-games", "0", {"games": "rlm_games"})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("recipe", ["guess", "nim", "python"])
def test_a_recipe_is_one(recipe: str) -> None:
    """The model knows every character that it may read or write; everything fits."""
    if recipe == "python" and find_spec("rlm_sandbox") is None:
        pytest.skip("needs rlm-sandbox")
    done = CliRunner().invoke(app, ["check", str(PACKAGE / "recipes" / f"{recipe}.yaml")])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("recipe", ["recipe.yaml", "recipes/calculator.yaml"])
def test_a_recipe_runs(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = ["stages.0.trainer.max_steps=4", "stages.1.trainer.max_steps=2"]
    short = [*steps, "evaluation.rows=8", "stages.0.evaluation.rows=8"]
    done = CliRunner().invoke(app, ["train", str(PACKAGE / recipe), "--out", "run", *short])
    assert done.exit_code == 0, done.output
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    played = [line for line in logged if "episodes/turns" in line]
    assert len(played) == 2
    assert all(line["episodes/failed"] == 0 for line in played)
    assert sum("held_out/rows" in line for line in logged) >= 3
    judged = CliRunner().invoke(app, ["eval", "run", "--rows", "8", "--json"])
    assert judged.exit_code == 0, judged.output
    last = [line for line in logged if "held_out/rows" in line][-1]
    report = json.loads(judged.output)
    assert report["score"] == pytest.approx(last[f"held_out/{report['metric']}"])
