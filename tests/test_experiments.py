"""The experiments on small policies: the gate, and effects on one seed."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import distill
import learners
import length_bias
import no_labels
import pytest
import r1
import self_play
import small_experiment
import stale_samples
import tango
from rlm_testing.fake_packages import registered

packages = registered("intrinsic", "selfplay", autouse=True)
MODULES = "stale_samples length_bias trick_claims monitoring model_prior granularity discovery rl_and_sft".split()  # noqa: SIM905
MODULES += ["r1", "distill", "no_labels", "learners", "tango", "self_play", "credit"]
EVERY = {name: x for module in MODULES for name, x in import_module(module).EXPERIMENTS.items()}
WITH_BUDGET = [(learners, 8000, 3, 0), (tango, 12000, 0, 3), (self_play, 60000, 1, 0)]


def test_interval_is_students() -> None:
    half = 4.303 * 0.2 / 3**0.5
    assert small_experiment.interval([0.2, 0.4, 0.6]) == pytest.approx((0.4 - half, 0.4 + half))


@pytest.mark.parametrize("name", EVERY)
def test_gate_is_open_on_two_seeds_and_closes_when_the_rate_is_multiplied_by_ten(name: str) -> None:
    closes = name in ("stale_0.4", "monitoring", "discovery", "rl_and_sft")  # other tables of logits bear the rate
    for scale in (1.0, 10.0) if closes else (1.0,):
        experiment = EVERY[name]() if scale == 1 else EVERY[name](scale=scale)
        control = experiment.arms[0]
        alone = replace(experiment, arms=[control], decided=[])
        failed = [small_experiment.gate(alone, {control.label: [control.run(seed)]}) for seed in (0, 1)]
        assert any(failed) is (scale == 10), failed


@pytest.mark.parametrize(
    ("curve", "reason"), [([0.1, 0.3], "starts"), ([0.5, 0.4], "goes"), ([0.79, 1.2], "saturated")]
)
def test_gate_names_what_failed(curve: list[float], reason: str) -> None:
    arm = (experiment := stale_samples.experiment(0.4)).arms[0]
    failed = small_experiment.gate(replace(experiment, arms=[arm]), {arm.label: [{"accuracy": curve}]})
    assert reason in " ".join(failed)


def test_wrong_answers_grow_only_where_the_policy_sees_the_mark() -> None:
    experiment = length_bias.experiment(steps=30)
    runs = {arm.label: arm.run(0) for arm in experiment.arms if "GRPO" in arm.label}
    assert runs["GRPO"]["wrong"][-1] > 1.5 * runs["GRPO"]["wrong"][0]
    assert runs["GRPO"]["right"][-1] < 0.7 * runs["GRPO"]["right"][0]
    assert abs(runs["GRPO, mark hidden"]["wrong"][-1] - runs["GRPO, mark hidden"]["wrong"][0]) < 5


@pytest.mark.parametrize(("module", "budget", "high", "low"), WITH_BUDGET)
def test_effects_on_two_seeds(module: Any, budget: int, high: int, low: int) -> None:
    experiment = module.experiment(budget=budget)
    for seed in (0, 1):
        above, below = (experiment.arms[arm].run(seed)[experiment.shown][-1] for arm in (high, low))
        assert above > below + 0.04


def test_agreement_cannot_pass_the_ceiling_that_labels_pass() -> None:
    arms = {arm.label: arm for arm in no_labels.experiment(steps=25).arms}
    ends = {name: arms[name].run(0)["accuracy"] for name in ("labels", "majority_vote", "rlsc")}
    assert ends["labels"][-1] > 0.75
    for name in ("majority_vote", "rlsc"):
        assert ends[name][0] + 0.2 < ends[name][-1] < 0.75


@pytest.mark.full
def test_filtered_samples_pass_the_teacher_stages_gain_and_consistency_ends_the_mixing() -> None:
    every, right = (arm.run(0)["held_out"][-1] for arm in distill.experiment().arms[:2])
    assert every + 0.05 < right
    assert r1.stages().arms[2].run(0)["right"][-1] > 0.8
    assert r1.language(greek_better=True).arms[1].run(0)["mixed"][-1] < 0.1
    fast = (ttrl := no_labels.ttrl(1, scale=10.0, steps=240)).arms[0]
    assert small_experiment.gate(replace(ttrl, arms=[fast]), {fast.label: [fast.run(0)]})
