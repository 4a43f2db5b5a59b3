"""The benchmark of recipes/survey: every recipe has seeds and columns, and its tables are those of the metrics."""

from __future__ import annotations

import json

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


def test_the_page_has_the_tables_of_the_records() -> None:
    lines = (survey.RESULTS / "survey.jsonl").read_text().splitlines()
    assert survey.tables([json.loads(line) for line in lines]) in (survey.FOLDER / "README.md").read_text()
