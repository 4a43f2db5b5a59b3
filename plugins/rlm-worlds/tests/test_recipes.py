"""The recipes of this package: they pass `rlm check`, and shortened runs train and evaluate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlm_plugins.cli import app

PACKAGE = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["recipe.yaml", pytest.param("recipes/calculator.yaml", marks=pytest.mark.full)])
def test_recipe_trains_and_evaluates(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = ["stages.0.trainer.max_steps=4", "stages.1.trainer.max_steps=2"]
    short = [*steps, "evaluation.rows=8", "stages.0.evaluation.rows=8"]
    result = CliRunner().invoke(app, ["train", str(PACKAGE / recipe), "--out", "run", *short])
    assert result.exit_code == 0, result.output
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    episode_lines = [line for line in logged if "episodes/turns" in line]
    assert len(episode_lines) == 2
    assert all(line["episodes/failed"] == 0 for line in episode_lines)
    assert sum("held_out/rows" in line for line in logged) >= 3
    evaluated = CliRunner().invoke(app, ["eval", "run", "--rows", "8", "--json"])
    assert evaluated.exit_code == 0, evaluated.output
    last = [line for line in logged if "held_out/rows" in line][-1]
    report = json.loads(evaluated.output)
    assert report["score"] == pytest.approx(last[f"held_out/{report['metric']}"])
