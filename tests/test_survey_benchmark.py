"""The benchmark of recipes/survey: every recipe has seeds and columns, and its tables are those of the metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import survey

from rlm_plugins import recipe


def test_every_recipe_has_seeds_and_columns_of_its_stages() -> None:
    files = {file.stem for file in survey.FOLDER.glob("*.yaml")}
    assert set(survey.SEEDS) == set(survey.TABLES) == files
    for name, figures in survey.TABLES.items():
        stages = {body["name"] for body in recipe.load(survey.FOLDER / f"{name}.yaml").bodies}
        assert {figure.stage for figure in figures} <= stages


@pytest.mark.parametrize("name", ["ttrl", "r1_zero"])
def test_a_seed_is_that_of_model_trainer_and_data(name: str) -> None:
    overrides = [text.format(seed=7, runs="runs") for text in survey.SEEDS[name]]
    first, *_ = recipe.load(survey.FOLDER / f"{name}.yaml", [*overrides, "trainer.seed=7"]).bodies
    assert first["trainer"]["seed"] == 7
    assert first["environment"].get("seed", 0) == (7 if name == "r1_zero" else 0)


def test_table_has_first_and_last_score_of_a_finished_run(tmp_path: Path) -> None:
    scores = [(0.5, 0.25, 0.75), (0.75, 0.5, 1.0)]
    lines = [
        {"stage": "02-ttrl", "step": step, "held_out/rows": 64, "held_out/accuracy": a, "held_out/mean_at_k": m}
        | {"held_out/majority_at_k": v}
        for step, (a, m, v) in enumerate(scores)
    ]
    folder = tmp_path / "ttrl-3"
    folder.mkdir()
    (folder / "summary.json").write_text("{}")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = survey.measured("ttrl", 3, tmp_path)
    assert survey.tables([record]).splitlines()[2] == "| 3 | 25.0 → 50.0 % | 75.0 → 100.0 % | 50.0 → 75.0 % |"


def test_the_page_has_the_tables_of_the_records() -> None:
    lines = (survey.RESULTS / "survey.jsonl").read_text().splitlines()
    assert survey.tables([json.loads(line) for line in lines]) in (survey.FOLDER / "README.md").read_text()


def test_distance_and_correlation_of_l1() -> None:
    judged = [{"held_out/rows": 9, "held_out/l1_exact": -score} for score in (0.4, 0.1)]
    steps = [{"reward": 0.0, "completions/mean_length": 30.0 + n, "budget_read/correlation": n / 10} for n in range(10)]
    found = survey._stage([judged[0], *steps, judged[1]])
    assert found["l1_exact"] == [-0.4, -0.1]
    assert found["correlation"] == pytest.approx([0.2, 0.7])
    distance, correlation, *_ = survey.TABLES["l1"]
    record = {"stages": {"exact": found}}
    assert (distance.text(record), correlation.text(record)) == ("8.00 → 2.00", "0.20 → 0.70")
