"""The benchmarks of prefetching, of generation during the update, and of recipes/survey: pages have their results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import overlap
import overlap_generation
import pytest
import survey

from rlm_plugins import recipe

TINY = replace(overlap.WORKLOAD, size="tiny", completion=12, mean=6, steps=2)
RESULTS = Path(overlap.__file__).parent / "results"


def test_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "KINDS", {"asynchronous": overlap.KINDS["asynchronous"]})
    (found,) = overlap.measure(1, TINY, times=(0.005,))
    assert {name: len(took) for name, took in found["clock"].items()} == {"without": 1, "with": 1}
    assert all(found["cpu"][name][0] > 0 for name in overlap.WHO)
    assert found["clock"]["without"][0] > 8 * 4 * 0.005 / 4, "four rows are asked about at a time, at most"


def test_page_of_prefetching_equals_the_results() -> None:
    found = json.loads((RESULTS / "overlap.json").read_text())
    assert (RESULTS / "overlap.md").read_text() == overlap.page(found)
    assert [(each["kind"], each["seconds"]) for each in found["measured"]] == [
        (kind, seconds) for kind in overlap.KINDS for seconds in overlap.TIMES
    ]
    assert found["rounds"] >= 5


def test_page_of_overlapped_generation_equals_the_results() -> None:
    found = json.loads((RESULTS / "overlap_generation.json").read_text())
    assert (RESULTS / "overlap_generation.md").read_text() == overlap_generation.page(found)
    for each in found.values():
        for records in each["rounds"]:
            assert records.keys() == overlap_generation.ARMS.keys()
            one, two = (records[arm]["weights"] for arm in (overlap_generation.ONE, overlap_generation.OVERLAPPED))
            assert one == two


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
