"""Every built-in part passes the conformance laws for plugins."""

from __future__ import annotations

import inspect
import textwrap
from typing import Annotated

import pytest
import torch
from pydantic import Field
from rlm_testing import conformance
from rlm_testing.conformance_kit import find_violation, report
from rlm_testing.law import Subject, battery

from rlm_plugins import hookimpl, hookspecs
from rlm_plugins.builtin import (
    advantages,
    aggregators,
    algorithms,
    callbacks,
    environments,
    filters,
    importance,
    models,
    penalties,
    policy_losses,
    rewards,
    rollouts,
    shapers,
    token_weights,
    trainers,
)
from rlm_plugins.equation import hooks
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import BUILTIN, Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.registry.setting import Section, Setting
from rlm_plugins.specs import Algorithm, EnvironmentSpec
from rlm_plugins.trainer.observer import StepObserver


@pytest.fixture(autouse=True)
def fewer_examples(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    """Halve the number of examples: a thousand cases use the same examples in every run."""
    monkeypatch.setattr("rlm_testing._examples", pytestconfig.getoption("--rlm-examples") // 2)


# ---- x, π, and who trains and watches

test_addition = conformance("rlm_environments", environments.addition, knobs={"train_rows": 300, "test_rows": 50})
test_shuffled = conformance("rlm_samplers", rollouts.shuffled)
test_in_order = conformance("rlm_samplers", rollouts.in_order)
test_scratch = conformance("rlm_models", models.scratch)


@pytest.mark.parametrize("name", ["grpo", "sft", "dft"])
def test_trainers(name: str) -> None:
    Part("rlm_trainers", name, BUILTIN, trainers.rlm_trainers()[name]).check()


@pytest.mark.parametrize("name", sorted(callbacks.rlm_callbacks()))
def test_callbacks(name: str) -> None:
    Part("rlm_callbacks", name, BUILTIN, callbacks.rlm_callbacks()[name]).check()


# ---- y


test_policy = conformance("rlm_rollouts", rollouts.policy, knobs={"temperature": 0.7})

# ---- r, r′, and filters

GOLD = ["4", "1,000", "1/2", "yes", "", None]
ANSWERS = ["<think>2+2</think><answer>4</answer>", "<answer>1000</answer>", "so it is 0.5", "<answer>Yes</answer>", "4"]

test_accuracy = conformance("rlm_rewards", rewards.accuracy, columns={"answer": GOLD, "completions": ANSWERS})
test_format = conformance("rlm_rewards", rewards.format, columns={"completions": ANSWERS})
test_length = conformance("rlm_rewards", rewards.length)


test_episode_return = conformance("rlm_rewards", rewards.episode_return)
test_overlong = conformance("rlm_shapers", shapers.overlong)
test_bounded = conformance("rlm_shapers", shapers.bounded, knobs={"low": -0.5, "high": 0.5})
test_kl_in_reward = conformance("rlm_shapers", shapers.kl_in_reward)
test_by_turn = conformance("rlm_shapers", shapers.by_turn)


test_nonzero_spread = conformance("rlm_filters", filters.nonzero_std)
test_nonzero_spread_of_one = conformance("rlm_filters", filters.nonzero_std, knobs={"reward": "format"})

# ---- Â

BATCH = {"isolation": "mean and std are those of the whole batch"}
NAMED = {"ties": "it looks at the rewards one by one, and these still differ"}
LONE = {"ties": "asked to, it pays a group of one its reward"}
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
test_lone_rewards = conformance(
    "rlm_advantages", advantages.group_relative, knobs={"singleton": "reward"}, exceptions=LONE
)
test_lone_rewards_of_others = conformance(
    "rlm_advantages", advantages.leave_one_out, knobs={"singleton": "reward"}, exceptions=LONE
)
test_others_over_batch = conformance(
    "rlm_advantages", advantages.leave_one_out, knobs={"scale": "batch"}, exceptions=BATCH
)
test_reward_by_reward = conformance("rlm_advantages", advantages.per_reward, exceptions=BATCH | NAMED)
test_weighted_reward_by_reward = conformance(
    "rlm_advantages",
    advantages.per_reward,
    knobs={"weights": {"format": 0.5}, "over": "tokens"},
    exceptions=BATCH | NAMED,
)
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

test_reinforce = conformance("rlm_policy_losses", policy_losses.reinforce)
test_clip = conformance("rlm_policy_losses", policy_losses.clip)
test_dual_clip = conformance("rlm_policy_losses", policy_losses.clip, knobs={"epsilon_high": 0.28, "delta": 3.0})
test_cispo = conformance("rlm_policy_losses", policy_losses.cispo)
test_cispo_low = conformance("rlm_policy_losses", policy_losses.cispo, knobs={"epsilon_low": 0.2})

test_plain = conformance("rlm_policy_losses", policy_losses.unclipped)
test_sapo = conformance("rlm_policy_losses", policy_losses.sapo)
test_vespo = conformance("rlm_policy_losses", policy_losses.vespo)
test_cispo_with_a_cap_below_one = conformance("rlm_policy_losses", policy_losses.cispo, knobs={"epsilon_high": -0.8})

test_mask_truncated = conformance("rlm_token_weights", token_weights.mask_truncated)
test_off_policy_mask = conformance("rlm_token_weights", token_weights.off_policy_mask, knobs={"threshold": 0.05})
test_top_entropy = conformance("rlm_token_weights", token_weights.top_entropy)

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
test_kl_old = conformance("rlm_penalties", penalties.kl_old)
test_entropy = conformance("rlm_penalties", penalties.entropy)
test_adaptive_entropy = conformance("rlm_penalties", penalties.AdaptiveEntropy, knobs={"target": 2.0})

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


ROWS = algorithms.rlm_algorithms()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_algorithms(row: Algorithm) -> None:
    subject = Subject(Part("rlm_algorithms", "row", BUILTIN, row))
    for law in battery(subject):
        assert find_violation(law, subject) is None


test_transformers = conformance("rlm_generators", rollouts.transformers)
test_vllm = conformance("rlm_generators", rollouts.vllm)


# ---- and nothing is left out

ELSEWHERE = {
    ("rlm_rewards", "trl"): "needs somebody's function: test_foreign_rewards of rlm-interop",
    ("rlm_environments", "successes"): "test_successes",
    ("rlm_environments", "dataset"): "needs files: test_environments",
    ("rlm_models", "pretrained"): "needs a checkpoint: test_models",
}
WHOLE_HOOKS = {"rlm_algorithms", "rlm_trainers", "rlm_callbacks", "rlm_settings"}


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
        "StepObserver": StepObserver,
        "Section": Section,
        "Setting": Setting,
        "Annotated": Annotated,
        "Field": Field,
        "RecipeError": RecipeError,
    }
    exec(textwrap.dedent(text.split("::\n", 1)[1]), names)
    ((name, target),) = names[hook]().items()  # type: ignore[operator]
    subject = Subject(Part(hook, name, "docs", target), {"path": "somewhere"} if name == "tiny_gpt" else {})
    for law in battery(subject):
        if law.name != "source":  # tiny_gpt would load a tokenizer from its path
            broken = find_violation(law, subject)
            assert broken is None, report(law, subject, broken)
