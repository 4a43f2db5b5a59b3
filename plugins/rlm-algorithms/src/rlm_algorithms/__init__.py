"""Published algorithms beyond those of TRL, and their parts."""

from __future__ import annotations

from pathlib import Path

from rlm_algorithms import (
    distillation,
    filters,
    group_advantages,
    imitation_losses,
    importance_ratios,
    length_control,
    policy_losses,
    token_gates,
)
from rlm_algorithms.adaptive_kl import AdaptiveKL, AdaptiveKLInReward
from rlm_algorithms.demonstrations import Demonstrations, greedy, prefixes
from rlm_algorithms.entropy_control import clip_cov, kl_cov
from rlm_algorithms.kept_set import KeptSet
from rlm_algorithms.preference_trainers import DPO, KTO
from rlm_algorithms.prompt_aggregator import prompt_mean
from rlm_algorithms.reference_value import ReferenceValue, value_regression
from rlm_algorithms.replay_rollouts import Replay
from rlm_algorithms.reward_combinations import product, sigmoid_shaping
from rlm_algorithms.teacher import Teacher
from rlm_algorithms.teacher_endpoint import Endpoint
from rlm_algorithms.tracked_values import Curriculum, Prioritized, TrackedBaseline
from rlm_algorithms.tree_rollouts import Branches
from rlm_algorithms.wrapped_environments import budgets, held_out_questions
from rlm_plugins import hookimpl
from rlm_plugins.specs import read_algorithms

FOLDER = Path(__file__).parent
ALGORITHMS = read_algorithms(FOLDER / "algorithms.toml", FOLDER / "teachers.toml", FOLDER / "conventions.toml")
"""Name → algorithm, in the order of the survey (arXiv 2509.08827), then the variants of libraries."""

rlm_environments = hookimpl(lambda: {"test_time": held_out_questions, "budgets": budgets})
rlm_samplers = hookimpl(lambda: {"prioritized": Prioritized, "curriculum": Curriculum})


@hookimpl
def rlm_rollouts() -> dict[str, object]:
    """Return the rollout sources of this package by name."""
    sources = {"greedy": greedy, "demonstrations": Demonstrations, "prefixes": prefixes}
    return {**sources, "replay": Replay, "branches": Branches}


rlm_rewards = hookimpl(lambda: {"l1_exact": length_control.l1_exact, "l1_max": length_control.l1_max})
rlm_teachers = hookimpl(lambda: {"endpoint": Endpoint})
rlm_shapers = hookimpl(
    lambda: {"adaptive_kl_in_reward": AdaptiveKLInReward, "sigmoid_shaping": sigmoid_shaping, "product": product}
)
rlm_filters = hookimpl(
    lambda: {
        "accuracy_band": filters.accuracy_band,
        "keep_k": filters.keep_k,
        "first_k": filters.first_k,
        "no_truncated_groups": filters.no_truncated_groups,
        "gate": filters.gate,
    }
)
rlm_advantages = hookimpl(
    lambda: {
        "batch_whitened": group_advantages.batch_whitened,
        "tracked_baseline": TrackedBaseline,
        "optimal_baseline": group_advantages.optimal_baseline,
        "greedy_baseline": group_advantages.greedy_baseline,
        "gpg": group_advantages.gpg,
        "pass_at_k": group_advantages.pass_at_k,
        "best_margin": group_advantages.best_margin,
        "teacher_log_ratio": distillation.teacher_log_ratio,
        "teacher_and_group": distillation.teacher_and_group,
        "max_rl": group_advantages.max_rl,
        "signed": group_advantages.signed,
        "batch_mean": group_advantages.batch_mean,
        "role_relative": group_advantages.role_relative,
        "reference_value": ReferenceValue,
        "optimal_token_baseline": group_advantages.optimal_token_baseline,
    }
)
rlm_importance = hookimpl(
    lambda: {
        "geometric_clipped": importance_ratios.geometric_clipped,
        "group_expectation": importance_ratios.group_expectation,
    }
)
rlm_policy_losses = hookimpl(
    lambda: {
        "gradient_preserving": policy_losses.gradient_preserving,
        "correctness": imitation_losses.correctness,
        "trajectory_balance": policy_losses.trajectory_balance,
        "sampled_distillation": distillation.sampled_distillation,
        "clipped_distillation": distillation.clipped_distillation,
        "divergence": distillation.divergence,
        "top_divergence": distillation.top_divergence,
        "dppo": policy_losses.dppo,
        "dro": policy_losses.dro,
        "topr": policy_losses.topr,
        "real": policy_losses.real,
        "value_regression": value_regression,
    }
)
rlm_token_weights = hookimpl(
    lambda: {
        "clip_cov": clip_cov,
        "truncated_importance": importance_ratios.truncated_importance,
        "trust_gate": importance_ratios.trust_gate,
        "constant": token_gates.constant,
        "fipo": token_gates.fipo,
        "m2po": token_gates.m2po,
        "teacher_reweighting": distillation.teacher_reweighting,
    }
)
rlm_penalties = hookimpl(
    lambda: {
        "kl_cov": kl_cov,
        "nll": imitation_losses.nll,
        "environment_nll": imitation_losses.environment_nll,
        "policy_shaping": imitation_losses.policy_shaping,
        "adaptive_kl": AdaptiveKL,
        "self_distillation": distillation.self_distillation,
    }
)
rlm_aggregators = hookimpl(lambda: {"prompt_mean": prompt_mean})
rlm_trainers = hookimpl(lambda: {"dpo": DPO, "kto": KTO})
rlm_algorithms = hookimpl(lambda: ALGORITHMS)
rlm_sections = hookimpl(lambda: {"teacher": Teacher, "kept_set": KeptSet})
