"""Diagnosis: each rule on records that violate it, healthy records, precedence, the log of a run folder."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlm_lab.live import advantage_agreement, data_facts, unseen_share
from rlm_lab.metrics import find
from rlm_lab.quantities import _OF_RECIPE, StageSettings, steps_of
from rlm_lab.rules import QUANTITIES, RULES, diagnose, foresee, violations
from rlm_lab.why import render, why

from rlm_plugins.models.scratch import CHARACTERS, build_tokenizer
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.specs import EnvironmentSpec

SECTION: dict[str, Any] = {
    "name": "grpo",
    "model": {"name": "pretrained", "lora": {"r": 8}},
    "rewards": [{"name": "accuracy", "as": "accuracy", "weight": 1.0}, {"name": "format", "weight": 0.2}],
    "algorithm": {"name": "grpo", "advantage": {"name": "group_relative"}, "policy_loss": {"epsilon": 0.2}},
    "trainer": {"max_steps": 100, "num_generations": 8, "learning_rate": 5e-4, "max_completion_length": 64},
}
HEALTHY: dict[str, Any] = {
    "stage": "01-grpo",
    "grad_norm": 0.2,
    "learning_rate": 5e-4,
    "reward": 0.5,
    "reward_std": 0.5,
    "reward_ties": 0.6,
    "reward_length_correlation": 0.1,
    "frac_reward_zero_std": 0.3,
    "rewards/accuracy/mean": 0.4,
    "rewards/accuracy/std": 0.5,
    "rewards/accuracy/failed": 0.0,
    "rewards/accuracy/unscored": 0.0,
    "rewards/accuracy/sum_correlation": 0.9,
    "rewards/format/mean": 0.6,
    "rewards/format/std": 0.5,
    "advantage/abs_mean": 0.7,
    "advantage/std": 1.0,
    "advantage/nonzero": 0.7,
    "completions/clipped_ratio": 0.02,
    "completions/mean_length": 30.0,
    "completions/distinct": 0.8,
    "entropy": 0.4,
    "filters/kept": 1.0,
    "refill/full": 1.0,
    "penalties/kl": 0.05,
    "policy_loss/clipped_low": 0.01,
    "policy_loss/clipped_high": 0.01,
    "critic/explained_variance": 0.3,
    "critic/value": 0.5,
    "critic/return": 0.5,
    "episodes/failed": 0.0,
    "tools/call_frequency": 1.0,
    "tools/failure_frequency": 0.1,
    "sources/pool/filled": 1.0,
    "sources/pool/truncated": 0.0,
    "sampling/sampling_logp_difference/mean": 0.01,
}
UNIFORM = {"frac_reward_zero_std": 1.0, "advantage/nonzero": 0.0}
"""Rule → metrics of the steps after the first two that violate it, or changes of the settings."""
VIOLATIONS: dict[str, dict[str, Any]] = {
    "non_finite_gradient": {"grad_norm": None},
    "advantage_explosion": {"advantage/abs_mean": 1e30},
    "zero_gradient": {"grad_norm": 0.0},
    "vanishing_advantage": {"advantage/abs_mean": 1e-9},
    "rewards_cancel": {"reward_std": 0.0},
    "truncated_completions": {"completions/clipped_ratio": 0.97, "reward": 0.0},
    "no_end_token": {"completions/clipped_ratio": 1.0},
    "growing_completions": {"completions/mean_length": 90.0},
    "shrinking_completions": {"completions/mean_length": 3.0, "rewards/accuracy/mean": 0.1},
    "held_out_falls": {"held_out/accuracy": 0.1},
    "prompts_too_easy": {**UNIFORM, "reward": 1.2, "rewards/accuracy/mean": 0.99},
    "alike_completions": {"completions/distinct": 0.125},
    "tied_rewards": {"reward_ties": 0.97},
    "unscored_completions": {"rewards/accuracy/unscored": 1.0},
    "failing_reward": {"rewards/accuracy/failed": 3.0},
    "length_rewarded": {"reward_length_correlation": -0.97},
    "secondary_reward_farmed": {"rewards/format/mean": 1.0, "rewards/accuracy/mean": 0.0},
    "main_reward_traded": {"rewards/accuracy/mean": 0.2, "reward": 0.7},
    "offset_reward": {"reward": 1e6, "reward_std": 0.5},
    "often_failing_reward": {"rewards/accuracy/failed": 3.0, "rewards/accuracy/unscored": 0.5},
    "nothing_kept": {"filters/kept": 0.0},
    "unfilled_batches": {"refill/full": 0.1},
    "policy_collapse": {"rewards/accuracy/mean": 0.0},
    "entropy_collapse": {"entropy": 0.001},
    "entropy_explosion": {"entropy": 4.0, "rewards/accuracy/mean": 0.1},
    "kl_runaway": {"penalties/kl": 8.0},
    "clipped_update": {"policy_loss/clipped_low": 0.4, "policy_loss/clipped_high": 0.4},
    "engine_mismatch": {"sampling/sampling_logp_difference/mean": 0.6},
    "critic_lags": {"critic/explained_variance": -2.0, "critic/value": -3.0},
    "failing_environment": {"episodes/failed": 0.8},
    "failing_tools": {"tools/failure_frequency": 1.0},
    "missing_demonstrations": {"sources/pool/filled": 0.0},
    "truncated_demonstrations": {"sources/pool/truncated": 1.0},
}
"""Rule → metrics of all steps that violate it."""
FROM_START: dict[str, dict[str, Any]] = {
    "reward_of_the_prompt": {**UNIFORM, "reward_std": 0.5},
    "dead_reward": {"rewards/accuracy/mean": 0.0, "rewards/accuracy/std": 0.0, "held_out/accuracy": 0.0},
    "training_below_held_out": {"rewards/accuracy/mean": 0.0, "rewards/accuracy/std": 0.0},
    "reward_without_spread": {"frac_reward_zero_std": 1.0},
    "noisy_reward": {"rewards/accuracy/noise": 0.5},
    "advantage_disagrees": {"advantage/reward_correlation": -0.9},
    "prompts_too_hard": {
        **UNIFORM,
        "reward": 0.1,
        "reward_std": 0.02,
        "rewards/accuracy/mean": 0.01,
        "held_out/accuracy": 0.01,
    },
    "success_not_paid": {"rewards/accuracy/unseen": 1.0},
    "constant_reward": {"reward": 0.9, "reward_std": 0.0, "rewards/accuracy/std": 0.0, "rewards/format/std": 0.0},
    "ineffective_reward": {"rewards/format/mean": 0.0, "rewards/format/std": 0.0},
    "main_reward_opposed": {"rewards/accuracy/sum_correlation": -0.9},
    "main_reward_unrelated": {"rewards/accuracy/sum_correlation": 0.02},
    "solved_at_start": {"held_out/accuracy": 0.99},
    "held_out_below_training": {"held_out/accuracy": 0.0},
}
OF_SETTINGS = {r.name: r for r in RULES if all(m.startswith(("settings/", "adapter/", "full/")) for m in r.healthy)}
DATA: dict[str, dict[str, float]] = {
    "duplicated_prompts": {"data/duplicated": 0.9},
    "held_out_overlap": {"data/overlap": 0.5},
    "answer_in_prompt": {"data/answer_in_prompt": 1.0},
    "no_generation_prompt": {"data/generation_prompt": 0.0},
    "wrong_end_token": {"data/end_of_turn": 0.0},
    "few_prompts": {"data/prompts": 1.0},
    "ambiguous_prompts": {"data/contradicted": 1.0},
    "few_held_out_prompts": {"data/held_out": 2.0},
    "no_held_out_prompts": {"data/held_out": 0.0},
    "pad_is_end": {"data/pad_is_end": 1.0},
}


def settings(**trainer: Any) -> StageSettings:
    section = {**SECTION, "trainer": {**SECTION["trainer"], **trainer}}
    return StageSettings(section, max_steps=100)


def log(changes: dict[str, Any], steps: int = 10) -> list[dict[str, Any]]:
    start = {name: 0.4 for name in changes if name.startswith("held_out")}
    return [{**HEALTHY, **start, "step": n, **(changes if n > 2 else {})} for n in range(1, steps + 1)]


def names(records: list[dict[str, Any]], chosen: StageSettings | None = None) -> list[str]:
    return [finding.name for finding in diagnose(records, "01-grpo", chosen or settings())]


def test_healthy_metrics_have_no_finding() -> None:
    assert names(log({})) == []


def test_every_rule_is_tested() -> None:
    assert {*VIOLATIONS, *FROM_START, *OF_SETTINGS, *DATA, "stale_policy"} == {rule.name for rule in RULES}


@pytest.mark.parametrize("rule", VIOLATIONS)
def test_violation_is_named_within_ten_steps(rule: str) -> None:
    steps = steps_of(log(VIOLATIONS[rule]), "01-grpo", settings())
    found = violations(steps, "01-grpo", settings())
    assert rule in [finding.name for finding in found]
    finding = next(finding for finding in found if finding.name == rule)
    assert (finding.step, finding.until) == (3, 10)
    assert "{" not in finding.evidence
    assert finding.remedy


@pytest.mark.parametrize("rule", VIOLATIONS)
def test_short_excursion_is_no_finding(rule: str) -> None:
    needed = next(r.least_steps for r in RULES if r.name == rule)
    changed = [{**HEALTHY, "step": n, **(VIOLATIONS[rule] if 2 < n < 2 + needed else {})} for n in range(1, 20)]
    assert rule not in names(changed)


@pytest.mark.parametrize("rule", FROM_START)
def test_violation_from_the_start_is_named(rule: str) -> None:
    metrics = FROM_START[rule]
    scores = [{"stage": "01-grpo", "step": 0, "held_out/accuracy": metrics.get("held_out/accuracy", 0.4)}]
    records = [{**HEALTHY, "step": n, **metrics} for n in range(1, 11)]
    assert names([*scores, *records[:5], *scores, *records[5:]])[0] == rule
    if rule in ("dead_reward", "constant_reward", "ineffective_reward"):
        assert rule not in names([*scores, {**HEALTHY, "step": 0}, *records]), "it varied once"


def example(rule: str) -> StageSettings:
    """Return the settings with the overrides that a rule gives as its example."""
    section = copy.deepcopy(SECTION)
    for override in re.split(r" (?=[\w.]+=)", OF_SETTINGS[rule].example):
        path, _, value = override.partition("=")
        *parents, key = path.split(".")
        inner = section
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[key] = yaml_strict.parse(value, override).data
    return StageSettings(section, max_steps=100)


@pytest.mark.parametrize("rule", OF_SETTINGS)
def test_example_of_a_rule_violates_it_before_the_first_step(rule: str) -> None:
    assert rule in [finding.name for finding in foresee("01-grpo", example(rule))]
    assert rule in names(log({}), example(rule))


@pytest.mark.parametrize("rule", DATA)
def test_facts_of_the_data_are_checked_before_and_after(rule: str) -> None:
    assert [finding.name for finding in foresee("01-grpo", settings(), DATA[rule])] == [rule]
    records = [{**HEALTHY, "step": n, **(DATA[rule] if n == 1 else {})} for n in range(1, 5)]
    assert names(records) == [rule]


def test_facts_of_the_data() -> None:
    rows = [{"prompt": f"{n}+{n}={2 * n}?", "answer": str(2 * n)} for n in range(20, 40)]
    tokenizer = build_tokenizer(CHARACTERS)
    facts = data_facts(EnvironmentSpec(train=[*rows, *rows], test=rows[:5]), tokenizer)
    assert (facts["data/duplicated"], facts["data/overlap"], facts["data/answer_in_prompt"]) == (0.5, 1.0, 1.0)
    assert facts["data/pad_is_end"] == 0.0
    asked = [{"prompt": f"{n}+{n}=?", "answer": str(2 * n)} for n in range(20, 40)]
    assert data_facts(EnvironmentSpec(train=asked), tokenizer)["data/answer_in_prompt"] == 0.0
    chosen = [{"prompt": f"{n}: is it odd or even?", "answer": ("even", "odd")[n % 2]} for n in range(20)]
    assert "data/answer_in_prompt" not in data_facts(EnvironmentSpec(train=chosen), tokenizer), "labels"
    triples = [random.Random(n).sample(range(10, 100), 3) for n in range(200)]
    largest = [{"prompt": "The largest of {}, {}, {}?".format(*three), "answer": str(max(three))} for three in triples]
    share = data_facts(EnvironmentSpec(train=largest), tokenizer)["data/answer_in_prompt"]
    assert share == pytest.approx(1 / 3, abs=0.1), "a choice: the answer is in every prompt, at one of three places"
    chat = EnvironmentSpec(train=[{"prompt": [{"role": "user", "content": "1+1"}]}])
    assert data_facts(chat, tokenizer)["data/generation_prompt"] == 1.0
    assert data_facts(chat, tokenizer)["data/end_of_turn"] == 1.0
    tokenizer.eos_token = tokenizer.pad_token
    assert data_facts(chat, tokenizer)["data/end_of_turn"] == 0.0
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer.pad_token = tokenizer.eos_token
    facts = data_facts(chat, tokenizer)
    assert (facts["data/generation_prompt"], facts["data/pad_is_end"]) == (0.0, 1.0)


def test_groups_that_are_not_paid_and_advantages_against_rewards() -> None:
    right, group = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1, 2, 2])
    assert unseen_share(right, torch.tensor([0.0, 1.0, 3.0, 3.0, 2.0, 2.0]), group) == 0.5, "the third group has no 0"
    assert unseen_share(torch.ones(6), right, group) is None
    agreements = []
    for advantage in (right, -right, torch.ones(6), 5 * group + right):
        batch = SimpleNamespace(rewards=right, advantages=advantage.unsqueeze(1), group=group)
        agreements.append(advantage_agreement(batch))  # type: ignore[arg-type]
    assert agreements == pytest.approx([1.0, -1.0, 0.0, 1.0])


def test_settings_of_a_normal_recipe_are_healthy() -> None:
    assert foresee("01-grpo", settings()) == []


def test_clipping_after_many_updates_is_a_stale_policy() -> None:
    changed = log({"policy_loss/clipped_low": 0.4, "policy_loss/clipped_high": 0.4})
    assert names(changed, settings(num_iterations=8)) == ["stale_policy"]


def test_clipping_of_sequences_is_no_finding() -> None:
    chosen = StageSettings({**SECTION, "algorithm": {**SECTION["algorithm"], "importance": {"name": "sequence"}}}, 100)
    assert names(log(VIOLATIONS["clipped_update"]), chosen) == []


def test_policy_has_no_gradient_while_the_critic_warms_up() -> None:
    chosen = StageSettings({**SECTION, "critic": {"warmup_steps": 12}}, max_steps=100)
    assert names(log(VIOLATIONS["zero_gradient"]), chosen) == []


def test_missing_end_token_is_not_reported_as_truncation() -> None:
    assert names(log(VIOLATIONS["no_end_token"])) == ["no_end_token"]


def test_group_rules_require_groups() -> None:
    records = [{**HEALTHY, "step": n, **FROM_START["prompts_too_hard"]} for n in range(1, 11)]
    assert names(records) == ["prompts_too_hard"]
    assert names(records, settings(num_generations=1)) == []


def test_of_two_findings_that_explain_each_other_the_earlier_is_kept() -> None:
    cut = {"completions/clipped_ratio": 0.97, "reward": 0.0}
    collapsed = {"rewards/accuracy/mean": 0.0}
    late = [{**record, **(cut if record["step"] > 12 else {})} for record in log(collapsed, 24)]
    assert names(late) == ["policy_collapse"]
    early = [{**record, **cut, **(collapsed if record["step"] > 12 else {})} for record in log({}, 24)]
    assert names(early) == ["truncated_completions"]


def test_current_violations_depend_on_the_last_steps_only() -> None:
    records = [*log(VIOLATIONS["kl_runaway"]), *({**HEALTHY, "step": n} for n in range(11, 21))]
    assert names(records) == ["kl_runaway"]
    assert violations(steps_of(records, "01-grpo", settings())[-8:], "01-grpo", settings()) == []


@pytest.mark.parametrize("metric", sorted({metric for rule in RULES for metric in rule.healthy}))
def test_bounds_name_documented_metrics_or_quantities(metric: str) -> None:
    known = metric in QUANTITIES or metric.removeprefix("settings/") in _OF_RECIPE
    assert known or find(metric.replace("<label>", "accuracy")) is not None


def test_run_folder(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(json.dumps({"name": "x", "stages": [{"name": "sft"}, SECTION]}))
    records = [{**record, "stage": "02-grpo"} for record in log(VIOLATIONS["kl_runaway"])]
    lines = [json.dumps(record) for record in records]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"stage": "02-grpo", "st']))
    report = why(tmp_path)
    assert [(entry["stage"], entry["steps"]) for entry in report] == [("02-grpo", 10)]
    assert "try       trainer.learning_rate=0.00015" in render(tmp_path, report)
