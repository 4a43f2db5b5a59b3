"""Every part passes the conformance laws for plugins."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlm_algorithms import (
    ALGORITHMS,
    adaptive_kl,
    demonstrations,
    distillation,
    entropy_control,
    filters,
    group_advantages,
    imitation_losses,
    importance_ratios,
    length_control,
    policy_losses,
    prompt_aggregator,
    reference_value,
    replay_rollouts,
    reward_combinations,
    token_gates,
    tracked_values,
    tree_rollouts,
    wrapped_environments,
)
from rlm_testing import conformance
from rlm_testing.conformance_kit import find_violation
from rlm_testing.law import Subject, battery

from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.specs import Algorithm

BUDGETS = {"base": "addition", "knobs": {"train_rows": 300, "test_rows": 50}}
test_budgets = conformance("rlm_environments", wrapped_environments.budgets, knobs=BUDGETS)
test_prioritized = conformance("rlm_samplers", tracked_values.Prioritized)
test_curriculum = conformance("rlm_samplers", tracked_values.Curriculum)
POOL = Path(__file__).parent / "data" / "pool.jsonl"
test_greedy = conformance("rlm_rollouts", demonstrations.greedy)
test_demonstrations = conformance("rlm_rollouts", demonstrations.Demonstrations)
test_replay = conformance("rlm_rollouts", replay_rollouts.Replay, knobs={"path": str(POOL)})
test_branches = conformance("rlm_rollouts", tree_rollouts.Branches)
TARGETS = {"target_length": [0, 2, 4000, 1.5, None, float("nan")]}
test_l1_exact = conformance("rlm_rewards", length_control.l1_exact, columns=TARGETS)
test_l1_max = conformance("rlm_rewards", length_control.l1_max, knobs={"alpha": 0.1}, columns=TARGETS)
test_adaptive_kl_in_reward = conformance("rlm_shapers", adaptive_kl.AdaptiveKLInReward, knobs={"target": 6.0})
test_sigmoid_shaping = conformance("rlm_shapers", reward_combinations.sigmoid_shaping, knobs={"score": "format"})
test_product = conformance("rlm_shapers", reward_combinations.product, knobs={"of": ["accuracy", "format"]})
FIRST = {"order": "of rows that tie the first ones are kept"}
test_accuracy_band = conformance("rlm_filters", filters.accuracy_band)
test_band_of_format = conformance("rlm_filters", filters.accuracy_band, knobs={"reward": "format"})
test_first_k = conformance("rlm_filters", filters.first_k, knobs={"k": 2}, exceptions=FIRST)
test_keep_shortest = conformance("rlm_filters", filters.keep_k, knobs={"k": 2}, exceptions=FIRST)
test_keep_efficient = conformance(
    "rlm_filters", filters.keep_k, knobs={"k": 1, "by": "reward_per_token"}, exceptions=FIRST
)
test_no_truncated_groups = conformance("rlm_filters", filters.no_truncated_groups)
test_gate = conformance("rlm_filters", filters.gate)
test_gate_of_one_reward = conformance("rlm_filters", filters.gate, knobs={"at_most": 1, "reward": "accuracy"})
TEACHER = {"ties": "the teacher decides, and no reward is compared"}
test_teacher_log_ratio = conformance("rlm_advantages", distillation.teacher_log_ratio, exceptions=TEACHER)
test_discounted_ratio = conformance(
    "rlm_advantages", distillation.teacher_log_ratio, knobs={"future": 0.9, "position": 0.5}, exceptions=TEACHER
)
test_teacher_and_group = conformance("rlm_advantages", distillation.teacher_and_group, exceptions=TEACHER)
test_prime_distillation = conformance(
    "rlm_policy_losses", distillation.sampled_distillation, knobs={"cap": 5.0, "sampled_by": "engine", "fall": 0.2}
)
test_clipped_distillation = conformance("rlm_policy_losses", distillation.clipped_distillation, knobs={"bound": 10.0})
ROLES = {"role": "accuracy", "episode": "format", "within_episode": [0.0, 1.0]}
test_role_relative = conformance("rlm_advantages", group_advantages.role_relative, knobs=ROLES)
VALUE = {"ties": "equal rewards are compared with samples of the reference policy"}
test_reference_value = conformance("rlm_advantages", reference_value.ReferenceValue, exceptions=VALUE)
test_value_regression = conformance("rlm_policy_losses", reference_value.value_regression)
test_unsolved_regression = conformance(
    "rlm_policy_losses", reference_value.value_regression, knobs={"unsolved": "trained"}
)
OUTSIDE = {"padding": "its tokens are outside of the mask"}
test_environment_nll = conformance("rlm_penalties", imitation_losses.environment_nll, exceptions=OUTSIDE)
test_sampled_distillation = conformance("rlm_policy_losses", distillation.sampled_distillation)
test_divergence = conformance("rlm_policy_losses", distillation.divergence, knobs={"beta": 0.5, "cap": 2.0})
test_top_divergence = conformance("rlm_policy_losses", distillation.top_divergence, knobs={"beta": 0.0})
test_top_renormalized = conformance(
    "rlm_policy_losses", distillation.top_divergence, knobs={"beta": 0.5, "rest": "renormalize"}
)
test_capped_distillation = conformance("rlm_policy_losses", distillation.sampled_distillation, knobs={"cap": 2.0})
test_teacher_reweighting = conformance("rlm_token_weights", distillation.teacher_reweighting)
test_self_distillation = conformance("rlm_penalties", distillation.self_distillation)
BATCH = {"isolation": "mean and std are those of the whole batch"}
SHARE = {"isolation": "what is made up for is the share of rows in the whole batch that teach nothing"}
LONE = {"ties": "asked to, it pays a group of one its reward"}
FAR = {"ties": "what is further away is worth less"}
FORGOTTEN = {"ties": "tokens before tool output are paid nothing for what comes after it"}
test_optimal_baseline = conformance("rlm_advantages", group_advantages.optimal_baseline)
test_greedy_baseline = conformance("rlm_advantages", group_advantages.greedy_baseline)
test_gpg = conformance("rlm_advantages", group_advantages.gpg, exceptions=SHARE)
test_gpg_of_verl = conformance(
    "rlm_advantages", group_advantages.gpg, knobs={"counted": "nonzero_rewards"}, exceptions=SHARE
)
test_lead = conformance("rlm_advantages", group_advantages.best_margin)
test_lone_optimal = conformance(
    "rlm_advantages", group_advantages.optimal_baseline, knobs={"singleton": "reward"}, exceptions=LONE
)
test_pass_at_one = conformance("rlm_advantages", group_advantages.pass_at_k, knobs={"k": 1, "threshold": 0.5})
test_pass_at_k = conformance("rlm_advantages", group_advantages.pass_at_k, knobs={"k": 2, "threshold": 0.5})
test_whitened = conformance("rlm_advantages", group_advantages.batch_whitened, exceptions=BATCH)
test_whitened_baseline = conformance(
    "rlm_advantages", group_advantages.batch_whitened, knobs={"center_by_group": True}, exceptions=BATCH
)
test_whitened_population = conformance(
    "rlm_advantages", group_advantages.batch_whitened, knobs={"unbiased": False}, exceptions=BATCH
)
test_whitened_through_holes = conformance(
    "rlm_advantages",
    group_advantages.batch_whitened,
    knobs={"gamma": 0.9, "masked_tokens": "discount"},
    exceptions=BATCH | FAR,
)
test_whitened_up_to_holes = conformance(
    "rlm_advantages",
    group_advantages.batch_whitened,
    knobs={"masked_tokens": "reset"},
    exceptions=BATCH | FORGOTTEN,
)
test_tracked = conformance("rlm_advantages", tracked_values.TrackedBaseline, exceptions=BATCH)
UNCOMPARED = {"ties": "each completion has the weight of its own outcome"}
test_max_rl = conformance("rlm_advantages", group_advantages.max_rl, knobs={"negative": "zero"})
test_max_rl_of_skyrl = conformance(
    "rlm_advantages",
    group_advantages.max_rl,
    knobs={"eps": 1e-6, "negative": "zero", "singleton": "reward"},
    exceptions=LONE,
)
test_signed = conformance(
    "rlm_advantages", group_advantages.signed, knobs={"positive": 0.1, "threshold": 0.5}, exceptions=UNCOMPARED
)
test_batch_mean = conformance("rlm_advantages", group_advantages.batch_mean, exceptions=BATCH)
test_optimal_token_baseline = conformance("rlm_advantages", group_advantages.optimal_token_baseline)
test_geometric_clipped = conformance("rlm_importance", importance_ratios.geometric_clipped)
test_group_expectation = conformance("rlm_importance", importance_ratios.group_expectation)
test_gppo = conformance("rlm_policy_losses", policy_losses.gradient_preserving)
test_ce_gppo = conformance(
    "rlm_policy_losses", policy_losses.gradient_preserving, knobs={"beta_low": 0.5, "beta_high": 0.9, "delta": 3.0}
)
test_dppo_tv = conformance("rlm_policy_losses", policy_losses.dppo)
test_dppo_kl = conformance(
    "rlm_policy_losses", policy_losses.dppo, knobs={"divergence": "kl", "low": 0.05, "high": 0.05, "cap": 20.0}
)
test_dppo_of_verl = conformance("rlm_policy_losses", policy_losses.dppo, knobs={"sampled_by": "old"})
test_dro = conformance("rlm_policy_losses", policy_losses.dro, knobs={"beta": 0.1})
test_topr = conformance("rlm_policy_losses", policy_losses.topr, knobs={"negative": 0.5})
test_real = conformance("rlm_policy_losses", policy_losses.real)
test_trajectory_balance = conformance("rlm_policy_losses", policy_losses.trajectory_balance)
test_verdict = conformance("rlm_policy_losses", imitation_losses.correctness)
test_clip_cov = conformance("rlm_token_weights", entropy_control.clip_cov, knobs={"share": 0.2, "low": 0.0})
test_truncated_importance = conformance("rlm_token_weights", importance_ratios.truncated_importance)
test_truncated_rows = conformance(
    "rlm_token_weights", importance_ratios.truncated_importance, knobs={"cap": 1.1, "level": "sequence"}
)
test_trust_gate = conformance("rlm_token_weights", importance_ratios.trust_gate)
test_masked_rows = conformance("rlm_token_weights", importance_ratios.trust_gate, knobs={"level": "sequence"})
test_gate_of_mean_ratio = conformance(
    "rlm_token_weights", importance_ratios.trust_gate, knobs={"level": "sequence_mean", "weighted": False}
)
test_gate_of_kl = conformance(
    "rlm_token_weights", importance_ratios.trust_gate, knobs={"of": "symmetric_kl", "high": 0.02}
)
test_gate_of_tv = conformance(
    "rlm_token_weights", importance_ratios.trust_gate, knobs={"of": "tv", "level": "sequence_mean", "high": 0.02}
)
test_constant = conformance("rlm_token_weights", token_gates.constant, knobs={"value": 0.5})
test_fipo = conformance("rlm_token_weights", token_gates.fipo)
test_fipo_both = conformance(
    "rlm_token_weights", token_gates.fipo, knobs={"high_only": False, "safety": None, "delta": 1.1}
)
test_m2po = conformance("rlm_token_weights", token_gates.m2po)
test_m2po_of_areal = conformance("rlm_token_weights", token_gates.m2po, knobs={"reading": "areal"})
test_prompt_mean = conformance("rlm_aggregators", prompt_aggregator.prompt_mean)
test_prompt_mean_of_completions = conformance(
    "rlm_aggregators", prompt_aggregator.prompt_mean, knobs={"within": "completions"}
)
test_kl_cov = conformance("rlm_penalties", entropy_control.kl_cov, knobs={"share": 0.2})
test_nll = conformance("rlm_penalties", imitation_losses.nll)
test_nll_by_probability = conformance("rlm_penalties", imitation_losses.nll, knobs={"weighted_by": "probability"})
test_nll_by_uncertainty = conformance("rlm_penalties", imitation_losses.nll, knobs={"weighted_by": "uncertainty"})
test_nll_by_certainty = conformance("rlm_penalties", imitation_losses.nll, knobs={"weighted_by": "certainty"})
test_policy_shaping = conformance("rlm_penalties", imitation_losses.policy_shaping)
test_unshaped_policy = conformance("rlm_penalties", imitation_losses.policy_shaping, knobs={"gamma": None})
test_adaptive_kl = conformance("rlm_penalties", adaptive_kl.AdaptiveKL, knobs={"target": 0.1, "unit": "token"})


@pytest.mark.parametrize("row", ALGORITHMS.values(), ids=ALGORITHMS)
def test_algorithms(row: Algorithm) -> None:
    subject = Subject(Part("rlm_algorithms", "row", "algorithms", row))
    for law in battery(subject):
        assert find_violation(law, subject) is None


ELSEWHERE = {
    **dict.fromkeys(("dpo", "kto"), "trainers: test_preference_stages"),
    "endpoint": "test_teachers",
    "test_time": "trains on its held-out examples: test_reference_and_environment",
    "prefixes": "test_demonstrations_and_balance",
    "teacher": "a section: test_teachers",
    "kept_set": "a section: test_kept_set",
}


def test_every_part_is_here() -> None:
    tested = {test.subject.part.target for test in globals().values() if hasattr(test, "subject")}
    missing = [
        part.name
        for part in Registry()
        if part.plugin == "algorithms" and part.hook != "rlm_algorithms" and part.target not in tested
        if part.name not in ELSEWHERE
    ]
    assert missing == []
