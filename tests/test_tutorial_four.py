"""From GRPO to PPO: every recipe changes one symbol of the previous one, and the last is `ppo`."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import turns
from fixtures_benchmark import lesson

from rlm_plugins import recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import objective
from rlm_plugins.stage import Stage

LESSON = turns.LESSON
TURNED = {
    "2-no-std": {"advantage"},
    "3-leave-one-out": {"advantage"},
    "4-critic": {"advantage", "penalties", "critic"},
    "5-whitened": {"advantage"},
    "6-lambda": {"advantage"},
    "7-ppo": {"shapers"},
    "8-one-answer": {"num_generations"},
}
"""A critic comes with the term that teaches it."""


def last(file: Path) -> Stage:
    return compose(recipe.load(file), Registry(), build_environment=False)[-1]


def symbols(stage: Stage) -> dict[str, Any]:
    """Return the settings of a stage without its name, model and algorithm name."""
    body = json.loads(json.dumps(stage.body))
    rest = {key: x for key, x in body.items() if key not in ("name", "algorithm", "trainer", "model")}
    return {**rest, **body["trainer"], **{key: x for key, x in body["algorithm"].items() if key != "name"}}


def test_every_recipe_changes_one_symbol() -> None:
    files = turns.turns(LESSON)
    assert [file.stem for file in files[1:]] == list(TURNED)
    for before, after in pairwise(files):
        one, other = symbols(last(before)), symbols(last(after))
        turned = {key for key in {*one, *other} if one.get(key) != other.get(key)}
        assert turned == TURNED[after.stem], after.stem


def test_turns_start_with_grpo_and_end_with_ppo() -> None:
    first, *_, ppo = (last(file) for file in turns.turns(LESSON)[:-1])
    assert first.equation is not None
    assert first.equation.advantage.part.name == "group_relative"
    assert ppo.body["algorithm"]["name"] == "ppo"
    assert ppo.equation is not None
    assert objective(vars(ppo.equation)).startswith("loss = Σ [ −min(w Â, clip(w, 1−0.2, 1+0.2) Â)")


def test_the_curves_are_those_of_the_recipes() -> None:
    records = turns.read(LESSON / turns.FILE)
    files = [file.stem for file in turns.turns(LESSON)]
    found = turns.curves(records)
    assert list(found) == files
    steps = last(turns.turns(LESSON)[0]).settings["max_steps"]
    for points in found.values():
        assert (points[0][0], points[-1][0]) == (0, steps)
    assert turns.table(records) in (LESSON / "README.md").read_text()


@pytest.mark.slow
def test_each_turn_trains_from_its_own_start(tmp_path: Path) -> None:
    (tmp_path / "1-a.yaml").write_text(lesson("ppo", max_steps=1, num_generations=1, save_strategy="no"))
    assert turns.main(["--lesson", str(tmp_path), "--runs", str(tmp_path), "--seeds", "0"]) == 0
    (record,) = turns.read(tmp_path / turns.FILE)
    assert (record["recipe"], record["seed"], [step for step, _ in record["curve"]]) == ("1-a", 0, [0, 1])
    assert (tmp_path / "curves.png").stat().st_size > 0
    before = (tmp_path / turns.FILE).read_text()
    assert turns.main(["--lesson", str(tmp_path), "--runs", str(tmp_path), "--seeds", "0"]) == 0
    assert (tmp_path / turns.FILE).read_text() == before, "what has been measured is not measured again"
