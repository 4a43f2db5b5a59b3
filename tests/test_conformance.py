"""Every built-in part passes the conformance laws for plugins."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import pytest
import torch
from rlm_testing import conformance
from rlm_testing.conformance_kit import find_violation, report
from rlm_testing.law import Subject, battery

from rlm_plugins import hookimpl, hooks, hookspecs
from rlm_plugins.algorithm import Algorithm
from rlm_plugins.builtin import adaptive_coefficients as adaptive
from rlm_plugins.builtin import (
    advantages,
    aggregators,
    algorithms,
    callbacks,
    conventions,
    environments,
    filters,
    generators,
    importance,
    models,
    penalties,
    policy_losses,
    rewards,
    rollouts,
    samplers,
    shapers,
    token_weights,
    trainers,
    wrapped_environments,
)
from rlm_plugins.builtin import episode_rewards as episodes
from rlm_plugins.registry import BUILTIN, Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.specs import EnvironmentSpec


@pytest.fixture(autouse=True)
def fewer_examples(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    """Halve the number of examples: a thousand cases use the same examples in every run."""
    monkeypatch.setattr("rlm_testing._examples", pytestconfig.getoption("--rlm-examples") // 2)


# ---- x, π, and who trains and watches

BUDGETS = {"base": "addition", "knobs": {"train_rows": 300, "test_rows": 50}}
test_budgets = conformance("rlm_environments", wrapped_environments.budgets, knobs=BUDGETS)
test_addition = conformance("rlm_environments", environments.addition, knobs={"train_rows": 300, "test_rows": 50})
test_shuffled = conformance("rlm_samplers", samplers.shuffled)
test_in_order = conformance("rlm_samplers", samplers.in_order)
test_prioritized = conformance("rlm_samplers", samplers.Prioritized)
test_curriculum = conformance("rlm_samplers", samplers.Curriculum)
test_scratch = conformance("rlm_models", models.scratch)


@pytest.mark.parametrize("name", ["grpo", "sft", "dft"])
def test_trainers(name: str) -> None:
    Part("rlm_trainers", name, BUILTIN, trainers.rlm_trainers()[name]).check()


@pytest.mark.parametrize("name", sorted(callbacks.rlm_callbacks()))
def test_callbacks(name: str) -> None:
    Part("rlm_callbacks", name, BUILTIN, callbacks.rlm_callbacks()[name]).check()


# ---- y

POOL = Path(__file__).parent / "data" / "pool.jsonl"

test_policy = conformance("rlm_rollouts", rollouts.policy, knobs={"temperature": 0.7})
test_greedy = conformance("rlm_rollouts", rollouts.greedy)
test_demonstrations = conformance("rlm_rollouts", rollouts.Demonstrations)
test_replay = conformance("rlm_rollouts", rollouts.Replay, knobs={"path": str(POOL)})
test_branches = conformance("rlm_rollouts", rollouts.Branches)

# ---- r, r′, and filters

GOLD = ["4", "1,000", "1/2", "yes", "", None]
ANSWERS = ["<think>2+2</think><answer>4</answer>", "<answer>1000</answer>", "so it is 0.5", "<answer>Yes</answer>", "4"]

test_accuracy = conformance("rlm_rewards", rewards.accuracy, columns={"answer": GOLD, "completions": ANSWERS})
test_format = conformance("rlm_rewards", rewards.format, columns={"completions": ANSWERS})
test_length = conformance("rlm_rewards", rewards.length)

TARGETS = {"target_length": [0, 2, 4000, 1.5, None, float("nan")]}
test_l1_exact = conformance("rlm_rewards", rewards.l1_exact, columns=TARGETS)
test_l1_max = conformance("rlm_rewards", rewards.l1_max, knobs={"alpha": 0.1}, columns=TARGETS)

test_episode_return = conformance("rlm_rewards", episodes.episode_return)
test_overlong = conformance("rlm_shapers", shapers.overlong)
test_bounded = conformance("rlm_shapers", shapers.bounded, knobs={"low": -0.5, "high": 0.5})
test_kl_in_reward = conformance("rlm_shapers", shapers.kl_in_reward)
test_adaptive_kl_in_reward = conformance("rlm_shapers", adaptive.AdaptiveKLInReward, knobs={"target": 6.0})
test_by_turn = conformance("rlm_shapers", episodes.by_turn)
test_sigmoid_shaping = conformance("rlm_shapers", shapers.sigmoid_shaping, knobs={"model": "format"})
test_product = conformance("rlm_shapers", shapers.product, knobs={"of": ["accuracy", "format"]})

FIRST = {"order": "of rows that tie the first ones are kept"}

test_nonzero_spread = conformance("rlm_filters", filters.nonzero_std)
test_nonzero_spread_of_one = conformance("rlm_filters", filters.nonzero_std, knobs={"reward": "format"})
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

# ---- Â

BATCH = {"isolation": "mean and std are those of the whole batch"}
SHARE = {"isolation": "what is made up for is the share of rows in the whole batch that teach nothing"}
NAMED = {"ties": "it looks at the rewards one by one, and these still differ"}
LONE = {"ties": "asked to, it pays a group of one its reward"}
FAR = {"ties": "what is further away is worth less"}
FORGOTTEN = {"ties": "tokens before tool output are paid nothing for what comes after it"}
CRITIC = {"ties": "the baseline is the critic's, not the other rows'"}

test_group_relative = conformance("rlm_advantages", advantages.group_relative)
test_centred = conformance("rlm_advantages", advantages.group_relative, knobs={"scale": "none"})
test_batch_scale = conformance("rlm_advantages", advantages.group_relative, knobs={"scale": "batch"}, exceptions=BATCH)
test_centred_batch_scale = conformance(
    "rlm_advantages", advantages.group_relative, knobs={"scale": "centered_batch"}, exceptions=BATCH
)
test_population = conformance("rlm_advantages", advantages.group_relative, knobs={"unbiased": False, "eps": 0.0})
test_leave_one_out = conformance("rlm_advantages", advantages.leave_one_out)
test_all_from_others = conformance("rlm_advantages", advantages.leave_one_out, knobs={"scale": "others"})
test_optimal_baseline = conformance("rlm_advantages", advantages.optimal_baseline)
test_greedy_baseline = conformance("rlm_advantages", advantages.greedy_baseline)
test_gpg = conformance("rlm_advantages", advantages.gpg, exceptions=SHARE)
test_gpg_of_verl = conformance("rlm_advantages", advantages.gpg, knobs={"counted": "nonzero_rewards"}, exceptions=SHARE)
test_lead = conformance("rlm_advantages", advantages.best_margin)
test_lone_rewards = conformance(
    "rlm_advantages", advantages.group_relative, knobs={"singleton": "reward"}, exceptions=LONE
)
test_lone_rewards_of_others = conformance(
    "rlm_advantages", advantages.leave_one_out, knobs={"singleton": "reward"}, exceptions=LONE
)
test_lone_optimal = conformance(
    "rlm_advantages", advantages.optimal_baseline, knobs={"singleton": "reward"}, exceptions=LONE
)
test_others_over_batch = conformance(
    "rlm_advantages", advantages.leave_one_out, knobs={"scale": "batch"}, exceptions=BATCH
)
test_pass_at_one = conformance("rlm_advantages", advantages.pass_at_k, knobs={"k": 1, "threshold": 0.5})
test_pass_at_k = conformance("rlm_advantages", advantages.pass_at_k, knobs={"k": 2, "threshold": 0.5})
test_reward_by_reward = conformance("rlm_advantages", advantages.per_reward, exceptions=BATCH | NAMED)
test_weighted_reward_by_reward = conformance(
    "rlm_advantages",
    advantages.per_reward,
    knobs={"weights": {"format": 0.5}, "over": "tokens"},
    exceptions=BATCH | NAMED,
)
test_whitened = conformance("rlm_advantages", advantages.batch_whitened, exceptions=BATCH)
test_whitened_baseline = conformance(
    "rlm_advantages", advantages.batch_whitened, knobs={"center_by_group": True}, exceptions=BATCH
)
test_whitened_population = conformance(
    "rlm_advantages", advantages.batch_whitened, knobs={"unbiased": False}, exceptions=BATCH
)
test_whitened_through_holes = conformance(
    "rlm_advantages",
    advantages.batch_whitened,
    knobs={"gamma": 0.9, "masked_tokens": "discount"},
    exceptions=BATCH | FAR,
)
test_whitened_up_to_holes = conformance(
    "rlm_advantages",
    advantages.batch_whitened,
    knobs={"masked_tokens": "reset"},
    exceptions=BATCH | FORGOTTEN,
)
test_tracked = conformance("rlm_advantages", advantages.TrackedBaseline, exceptions=BATCH)
test_gae = conformance("rlm_advantages", advantages.gae, exceptions=BATCH | CRITIC)
test_gae_of_vapo = conformance(
    "rlm_advantages",
    advantages.gae,
    knobs={"whitened": False, "lam_critic": 1.0, "by_length": 0.5},
    exceptions=CRITIC,
)
test_value_loss = conformance("rlm_penalties", penalties.value_loss)
test_plain_value_loss = conformance("rlm_penalties", penalties.value_loss, knobs={"epsilon": None})
test_raw_gae = conformance("rlm_advantages", advantages.gae, knobs={"whitened": False}, exceptions=CRITIC)
test_gae_through_holes = conformance(
    "rlm_advantages", advantages.gae, knobs={"whitened": False, "masked_tokens": "discount"}, exceptions=CRITIC
)

# ---- w, ℓ, c

test_token = conformance("rlm_importance", importance.token)
test_sequence = conformance("rlm_importance", importance.sequence)
test_sequence_ratio_of_a_product = conformance("rlm_importance", importance.sequence_sum)
test_sequence_token = conformance("rlm_importance", importance.sequence_token)
test_geometric_clipped = conformance("rlm_importance", importance.geometric_clipped)
test_group_expectation = conformance("rlm_importance", importance.group_expectation)

test_reinforce = conformance("rlm_policy_losses", policy_losses.reinforce)
test_clip = conformance("rlm_policy_losses", policy_losses.clip)
test_dual_clip = conformance("rlm_policy_losses", policy_losses.clip, knobs={"epsilon_high": 0.28, "delta": 3.0})
test_cispo = conformance("rlm_policy_losses", policy_losses.cispo)
test_cispo_low = conformance("rlm_policy_losses", policy_losses.cispo, knobs={"epsilon_low": 0.2})

test_plain = conformance("rlm_policy_losses", policy_losses.unclipped)
test_gppo = conformance("rlm_policy_losses", policy_losses.gradient_preserving)
test_ce_gppo = conformance(
    "rlm_policy_losses", policy_losses.gradient_preserving, knobs={"beta_low": 0.5, "beta_high": 0.9, "delta": 3.0}
)
test_sapo = conformance("rlm_policy_losses", policy_losses.sapo)
test_vespo = conformance("rlm_policy_losses", policy_losses.vespo)
test_cispo_with_a_cap_below_one = conformance("rlm_policy_losses", policy_losses.cispo, knobs={"epsilon_high": -0.8})
test_verdict = conformance("rlm_policy_losses", policy_losses.correctness)

test_mask_truncated = conformance("rlm_token_weights", token_weights.mask_truncated)
test_off_policy_mask = conformance("rlm_token_weights", token_weights.off_policy_mask, knobs={"threshold": 0.05})
test_top_entropy = conformance("rlm_token_weights", token_weights.top_entropy)
test_clip_cov = conformance("rlm_token_weights", token_weights.clip_cov, knobs={"share": 0.2, "low": 0.0})
test_truncated_importance = conformance("rlm_token_weights", token_weights.truncated_importance)
test_truncated_rows = conformance(
    "rlm_token_weights", token_weights.truncated_importance, knobs={"cap": 1.1, "level": "sequence"}
)
test_masked_importance = conformance("rlm_token_weights", token_weights.masked_importance)
test_masked_rows = conformance("rlm_token_weights", token_weights.masked_importance, knobs={"level": "sequence"})

# ---- βΩ, 1/Z

test_k1 = conformance("rlm_penalties", penalties.kl, knobs={"estimator": "k1"})
test_k2 = conformance("rlm_penalties", penalties.kl, knobs={"estimator": "k2"})
test_k3 = conformance("rlm_penalties", penalties.kl)
test_bounded_k3 = conformance("rlm_penalties", penalties.kl, knobs={"bound": 0.05})
test_weighted_kl = conformance(
    "rlm_penalties",
    penalties.kl,
    knobs={"importance_weighted": True},
    exceptions={"optional": "asked to weigh by a ratio, it must not go on without one"},
)
test_straight_through_k1 = conformance(
    "rlm_penalties", penalties.kl, knobs={"estimator": "k1", "straight_through": True}
)
test_abs = conformance("rlm_penalties", penalties.kl, knobs={"estimator": "abs"})
test_kl_cov = conformance("rlm_penalties", penalties.kl_cov, knobs={"share": 0.2})
test_kl_old = conformance("rlm_penalties", penalties.kl_old)
test_entropy = conformance("rlm_penalties", penalties.entropy)
test_nll = conformance("rlm_penalties", penalties.nll)
test_nll_by_probability = conformance("rlm_penalties", penalties.nll, knobs={"weighted_by": "probability"})
test_nll_by_certainty = conformance("rlm_penalties", penalties.nll, knobs={"weighted_by": "certainty"})
test_policy_shaping = conformance("rlm_penalties", penalties.policy_shaping)
test_unshaped_policy = conformance("rlm_penalties", penalties.policy_shaping, knobs={"gamma": None})
test_adaptive_kl = conformance("rlm_penalties", adaptive.AdaptiveKL, knobs={"target": 0.1, "unit": "token"})
test_adaptive_entropy = conformance("rlm_penalties", adaptive.AdaptiveEntropy, knobs={"target": 2.0})

test_token_mean = conformance("rlm_aggregators", aggregators.token_mean)
test_sequence_mean = conformance("rlm_aggregators", aggregators.sequence_mean)
test_sequence_sum = conformance("rlm_aggregators", aggregators.sequence_sum)
test_fixed_length = conformance("rlm_aggregators", aggregators.fixed_length)
COUNTED = {"optional": "asked to count empty rows, it must not go on without their number"}
test_counted_mean = conformance(
    "rlm_aggregators", aggregators.sequence_mean, knobs={"empty_completions": "included"}, exceptions=COUNTED
)
test_counted_sum = conformance(
    "rlm_aggregators", aggregators.sequence_sum, knobs={"empty_completions": "included"}, exceptions=COUNTED
)
test_sum_of_the_batch = conformance("rlm_aggregators", aggregators.fixed_length, knobs={"over": "batch"})
test_micro_batch_token_mean = conformance(
    "rlm_aggregators",
    aggregators.micro_batch_token_mean,
    exceptions={"split": "it is TRL's bnpo: a mean over micro-batches of their means"},
)


ROWS = {**algorithms.rlm_algorithms(), **conventions.rlm_algorithms()}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_algorithms(row: Algorithm) -> None:
    subject = Subject(Part("rlm_algorithms", "row", BUILTIN, row))
    for law in battery(subject):
        assert find_violation(law, subject) is None


test_transformers = conformance("rlm_generators", generators.transformers)
test_vllm = conformance("rlm_generators", generators.vllm)


# ---- and nothing is left out

_GUESTS = dict.fromkeys(("trl", "verl", "openrlhf", "verifiers"), "needs somebody's function: test_foreign_rewards")
ELSEWHERE = {
    **{("rlm_rewards", name): why for name, why in _GUESTS.items()},
    ("rlm_environments", "verifiers"): "needs somebody's environment: test_foreign_rewards",
    ("rlm_rewards", "reward_model"): "needs a trained model: test_reward_model",
    ("rlm_rewards", "gist"): "test_reward_model",
    ("rlm_environments", "gist"): "test_reward_model",
    ("rlm_environments", "successes"): "test_successes",
    ("rlm_environments", "test_time"): "trains on its held-out examples: test_wrapped_environments",
    ("rlm_environments", "dataset"): "needs files: test_environments",
    ("rlm_models", "pretrained"): "needs a checkpoint: test_models",
}
WHOLE_HOOKS = {"rlm_algorithms", "rlm_trainers", "rlm_callbacks"}


def test_every_built_in_is_here() -> None:
    tested = {t.subject.part.target for t in globals().values() if hasattr(t, "subject")}
    missing = [
        part.full_name
        for part in Registry()
        if part.plugin == BUILTIN and part.hook not in WHOLE_HOOKS and part.target not in tested
        if (part.hook, part.name) not in ELSEWHERE
    ]
    assert missing == []


@pytest.mark.parametrize("hook", hooks.HOOKS)
def test_the_example_of_every_hook_is_a_good_part(hook: str) -> None:
    text = inspect.getdoc(getattr(hookspecs, hook)) or ""
    names = {
        "torch": torch,
        "hookimpl": hookimpl,
        "EnvironmentSpec": EnvironmentSpec,
        "Algorithm": Algorithm,
        "TrainerCallback": object,
    }
    exec(textwrap.dedent(text.split("::\n", 1)[1]), names)
    ((name, target),) = names[hook]().items()  # type: ignore[operator]
    subject = Subject(Part(hook, name, "docs", target), {"path": "somewhere"} if name == "tiny_gpt" else {})
    for law in battery(subject):
        if law.name != "source":  # tiny_gpt would load a tokenizer from its path
            broken = find_violation(law, subject)
            assert broken is None, report(law, subject, broken)
