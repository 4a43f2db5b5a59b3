"""The experiments of benchmarks/foundations: their tasks, arms and page, and a small run of one."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import experiment
import length_bias
import monitoring
import no_labels
import page
import pytest
import small_experiment
import stale_samples
import tasks
from experiment import Experiment, Job
from rlm_testing.fake_packages import registered

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


def test_interval_is_students() -> None:
    low, high = page.interval([0.2, 0.4, 0.6])
    assert (low + high) / 2 == pytest.approx(0.4)
    assert (high - low) / 2 == pytest.approx(4.303 * 0.2 / 3**0.5)


@pytest.mark.parametrize(("scale", "is_open"), [(1.0, True), (10.0, False)])
@pytest.mark.parametrize("build", [partial(stale_samples.experiment, 0.4), monitoring.experiment])
def test_gate_closes_when_the_rate_is_multiplied_by_ten(
    build: Callable[..., small_experiment.Experiment], scale: float, is_open: bool
) -> None:
    found = build(scale=scale)
    control = found.arms[0]
    curves = {control.label: [control.run(0)]}
    failed = small_experiment.gate(replace(found, arms=[control], decided=[]), curves)
    assert (not failed) is is_open, failed


@pytest.mark.parametrize(
    ("curve", "reason"), [([0.1, 0.3], "starts"), ([0.5, 0.4], "goes"), ([0.79, 1.2], "saturated")]
)
def test_gate_names_what_failed(curve: list[float], reason: str) -> None:
    found = stale_samples.experiment(0.4)
    arm = found.arms[0]
    assert reason in " ".join(small_experiment.gate(replace(found, arms=[arm]), {arm.label: [{"accuracy": curve}]}))


@pytest.mark.full
def test_wrong_answers_grow_only_where_the_policy_sees_the_mark() -> None:
    found = length_bias.experiment(steps=30)
    runs = {arm.label: arm.run(0) for arm in found.arms if "GRPO" in arm.label}
    assert runs["GRPO"]["wrong"][-1] > 1.5 * runs["GRPO"]["wrong"][0]
    assert runs["GRPO"]["right"][-1] < 0.7 * runs["GRPO"]["right"][0]
    assert abs(runs["GRPO, mark hidden"]["wrong"][-1] - runs["GRPO, mark hidden"]["wrong"][0]) < 5


intrinsic = registered("intrinsic")


@pytest.mark.usefixtures("intrinsic")
def test_agreement_cannot_pass_the_ceiling_that_labels_pass() -> None:
    arms = {arm.label: arm for arm in no_labels.experiment(steps=25).arms}
    ends = {name: arms[name].run(0)["accuracy"] for name in ("labels", "majority_vote", "rlsc")}
    assert ends["labels"][-1] > 0.75
    for name in ("majority_vote", "rlsc"):
        assert ends[name][0] + 0.2 < ends[name][-1] < 0.75
