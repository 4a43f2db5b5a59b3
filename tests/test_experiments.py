"""The experiments on small policies: the gate, and effects on one seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import discovery
import length_bias
import monitoring
import no_labels
import pytest
import rl_and_sft
import small_experiment
import stale_samples
from rlm_testing.fake_packages import registered


def test_interval_is_students() -> None:
    low, high = small_experiment.interval([0.2, 0.4, 0.6])
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


def test_a_fourth_step_that_the_base_nearly_never_writes_is_not_learned() -> None:
    run = discovery.experiment(steps=15).arms[2].run(0)
    assert run["three"][-1] > 5 * run["three"][0]
    assert run["four"][-1] < 0.02


def test_demonstrations_in_another_form_move_the_policy_further_than_its_own_samples() -> None:
    arms = {arm.label: arm for arm in rl_and_sft.experiment(steps=15).arms}
    moved = {label: arms[label].run(0)["kl"][-1] for label in ("RL (GRPO)", "SFT, other form")}
    assert moved["SFT, other form"] > 3 * moved["RL (GRPO)"]
