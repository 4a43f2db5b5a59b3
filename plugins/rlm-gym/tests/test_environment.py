"""The environment `gym`: contract, mixtures, levels, held-out questions and recipe errors."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install ./plugins/rlm-gym")

from rlm_gym import gym, tasks
from rlm_gym.__main__ import main
from rlm_gym.environment import TaskSpec
from rlm_testing import conformance

from rlm_plugins.errors import RecipeError

MIXTURE = ["gcd", {"name": "spell_backward", "weight": 3.0, "settings": {"max_word_len": 4}}]
test_laws = conformance("rlm_environments", gym, knobs={"tasks": MIXTURE, "train_rows": 200, "test_rows": 20})


def test_mixture_follows_weights() -> None:
    environment_spec = gym(tasks=["gcd", TaskSpec(name="lcm", weight=3.0)], train_rows=400, test_rows=7)
    counts = Counter(row["task"] for row in environment_spec.train)
    assert counts.total() == 400
    assert 260 < counts["lcm"] < 340
    assert Counter(row["task"] for row in environment_spec.test) == {"gcd": 7, "lcm": 7}


def test_levels_form_blocks_of_increasing_difficulty() -> None:
    environment_spec = gym(
        tasks=["chain_sum", "acre", TaskSpec(name="gcd", level=1)], levels=[0, 3], train_rows=60, test_rows=6
    )
    sums = [row for row in environment_spec.train if row["task"] == "chain_sum"]
    assert [row["level"] for row in sums] == sorted(row["level"] for row in sums)
    terms = {level: max(row["question"].count(" ") for row in sums if row["level"] == level) for level in (0, 3)}
    assert terms[0] < terms[3]
    assert {row["level"] for row in environment_spec.train if row["task"] == "acre"} == {None}  # it has none
    assert {row["level"] for row in environment_spec.train if row["task"] == "gcd"} == {1}
    assert Counter(row["level"] for row in environment_spec.test if row["task"] == "chain_sum") == {0: 3, 3: 3}


def test_held_out_questions_do_not_depend_on_seed_size_level_or_mixture() -> None:
    small = {"name": "gcd", "settings": {"max_value": 9}}
    first = gym(tasks=[TaskSpec(**small)], train_rows=300, test_rows=9)
    tested = {row["question"] for row in first.test}
    assert 3 < len(tested) == len(first.test)
    for seed in (1, 2):
        other = gym(tasks=["lcm", TaskSpec(**small)], train_rows=400, test_rows=4, seed=seed)
        assert not tested & {row["question"] for row in other.train}
        assert {row["question"] for row in other.test if row["task"] == "gcd"} <= tested
        assert [row["question"] for row in other.train] != [row["question"] for row in first.train]


def test_slip_changes_demonstrations_only() -> None:
    tasks_ = [TaskSpec(name="spell_backward"), TaskSpec(name="gcd", settings={"max_value": 9})]
    neat, sloppy = (gym(tasks=tasks_, train_rows=400, test_rows=9, slip=slip) for slip in (0.0, 0.6))
    assert neat.test == sloppy.test
    spoilt = 0
    for before, after in zip(neat.train, sloppy.train, strict=True):
        assert {**before, "demonstration": ""} == {**after, "demonstration": ""}
        if before["demonstration"] != after["demonstration"]:
            spoilt += 1
            assert len(after["answer"]) > 1
            assert after["demonstration"] == f"<answer>{after['answer'][:-1]}</answer>"
    words = sum(row["task"] == "spell_backward" for row in neat.train)
    assert 0.5 * words < spoilt < 0.7 * words


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "chain_sums"}, "did you mean 'chain_sum'"),
        ({"name": "composite"}, "unknown reasoning-gym task 'composite'"),
        ({"name": "gcd", "settings": {"max_valu": 3}}, "did you mean 'max_value'"),
        ({"name": "gcd", "settings": {"max_value": -3}}, "rejects these settings"),
        ({"name": "acre", "level": 1}, "has no levels"),
    ],
)
def test_recipe_errors(spec: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError) as error:
        gym(tasks=[TaskSpec(**spec)])
    assert message in str(error.value)
    assert "environment.tasks[0]" in str(error.value)


def test_hash_dependent_tasks_require_pythonhashseed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(RecipeError, match="PYTHONHASHSEED=0"):
        gym(tasks=["ransom_note"])
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert len(gym(tasks=["ransom_note"], train_rows=3, test_rows=0).train) == 3


def test_list_prints_every_task() -> None:
    names = [line.split()[1] for line in main(["list"]).splitlines()]
    assert sorted(names) == tasks.names()
    assert len(names) == 105
    assert "max_value: 1000" in main(["show", "gcd"])


def test_codeio_writes_no_file_beside_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = tasks.settings("codeio", None, {}, "codeio")
    assert len(list(islice(tasks.items("codeio", settings, "test"), 60))) == 60
    assert list(tmp_path.iterdir()) == []
