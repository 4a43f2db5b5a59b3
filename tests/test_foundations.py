"""The experiments of benchmarks/foundations: their tasks, arms and page, and a small run of one."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import experiment
import page
import pytest
import tasks
import torch
from experiment import Experiment, Job

from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry

NAMES = [name for name in page.ORDER if (experiment.HERE / f"{name}.py").exists()]
PACKAGES = Path(__file__).parent / "paper_packages.py"
each = pytest.mark.parametrize("name", NAMES)


def of(name: str) -> Experiment:
    return importlib.import_module(name).EXPERIMENT


@each
def test_start_and_every_arm_pass_every_check_of_names(name: str, tmp_path: Path) -> None:
    for arm in of(name).arms:
        for found in Job(of(name), arm, 1, tmp_path).recipes():
            stages = compose(found, Registry([*found.load, PACKAGES]), build_environment=False)
            assert [stage.settings["seed"] for stage in stages] == [1]


@each
def test_arms_differ(name: str, tmp_path: Path) -> None:
    arms = of(name).arms
    jobs = [Job(of(name), arm, 0, tmp_path) for arm in arms]
    assert len({job.key for job in jobs}) == len({job.folder for job in jobs}) == len(arms)
    bodies = [json.dumps([found.bodies for found in job.recipes()]) for job in jobs if job.arm.name != experiment.START]
    assert len(set(bodies)) == len(bodies)


def test_a_record_is_measured_again_after_a_change_of_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("discovery.yaml", "tasks.py"):
        (tmp_path / name).write_text((experiment.HERE / name).read_text())
    monkeypatch.setattr(experiment, "HERE", tmp_path)
    job = Job(of("discovery"), of("discovery").arms[0], 0, tmp_path)
    before = job.key, job.start
    (tmp_path / "tasks.py").write_text((tmp_path / "tasks.py").read_text() + "# a change\n")
    assert job.key != before[0]
    assert job.start != before[1]


def test_functions_are_applied_in_turn_and_strings_are_held_out() -> None:
    spec = tasks.functions(depths=[2, 3], without=["ad"], train_rows=300)
    names = {row["prompt"][0]["content"].partition(":")[0] for row in spec.train}
    assert "ad" not in names
    assert {len(name) for name in names} == {2, 3}
    strings = [{row["prompt"][0]["content"][-5:-2] for row in rows} for rows in (spec.train, spec.test)]
    assert not strings[0] & strings[1]
    row = tasks.functions(only=["ac"], test_rows=1, train_rows=1).test[0]
    text = row["prompt"][0]["content"][3:6]
    once, twice = text[::-1], "".join(str(9 - int(digit)) for digit in text[::-1])
    assert row["answer"] == twice
    assert row["demonstration"] == f"<think>a{once};c{twice}</think><answer>{twice}</answer>"


def test_slips_are_in_training_demonstrations_only() -> None:
    spec = tasks.functions(only=["ab"], slip=1.0, train_rows=200)
    wrong = [f"<answer>{row['answer']}</answer>" not in row["demonstration"] for row in spec.train]
    assert 0.5 < sum(wrong) / len(wrong) < 1, "one of four random functions is the right one"
    assert all(f"<answer>{row['answer']}</answer>" in row["demonstration"] for row in spec.test)


def test_wrong_label_is_the_sum_without_carries() -> None:
    texts = ["<answer>71</answer>", "<answer>81</answer>", "<answer>59</answer>"]
    prompts = [[{"role": "user", "content": text}] for text in ("27+54=?", "27+54=?", "27+32=?")]
    assert tasks.wrong_label(texts, prompts) == [1.0, 0.0, 0.0], "71 forgets a carry; 27+32 has none to forget"


def test_only_the_tokens_after_the_answer_are_trained() -> None:
    class Tokenizer:
        def convert_tokens_to_ids(self, token: str) -> int:
            return {"</answer>": 9}[token]

    rewards, group = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.long)
    ids = [[5, 9, 1, 1], [5, 9, 1], [5, 5], [9]]
    mask = torch.tensor([[True] * len(row) + [False] * (4 - len(row)) for row in ids])
    for scale, size in (("none", torch.ones(())), ("group", rewards.std() + 1e-4)):
        actual = tasks.only_idle(rewards, group, mask, ids, Tokenizer(), scale=scale)
        expected = torch.tensor([[0, 0, 0.75, 0.75], [0, 0, -0.25, 0], [0] * 4, [0] * 4]) / size
        torch.testing.assert_close(actual, expected)


def test_interval_is_students() -> None:
    low, high = page.interval([0.2, 0.4, 0.6])
    assert (low + high) / 2 == pytest.approx(0.4)
    assert (high - low) / 2 == pytest.approx(4.303 * 0.2 / 3**0.5)
