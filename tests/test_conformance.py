"""Every built-in part passes the conformance laws for plugins."""

from __future__ import annotations

from typing import Any

import pytest
from rlm_testing import conformance

from rlm_plugins.registry import BUILTIN, Registry


@pytest.fixture(autouse=True)
def fewer_examples(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    """Halve the number of examples: a thousand cases use the same examples in every run."""
    monkeypatch.setattr("rlm_testing._examples", pytestconfig.getoption("--rlm-examples") // 2)


GOLD = ["4", "1,000", "1/2", "yes", "", None]
ANSWERS = ["<think>2+2</think><answer>4</answer>", "<answer>1000</answer>", "so it is 0.5", "<answer>Yes</answer>", "4"]
BATCH = {"isolation": "mean and std are those of the whole batch"}
NAMED = {"ties": "it looks at the rewards one by one, and these still differ"}
LONE = {"ties": "asked to, it pays a group of one its reward"}
CRITIC = {"ties": "the baseline is the critic's, not the other rows'"}
COUNTED = {"optional": "asked to count empty rows, it must not go on without their number"}

WITH_DEFAULTS: dict[str, dict[str, Any]] = {
    "addition": {"knobs": {"train_rows": 300, "test_rows": 50}},
    "accuracy": {"columns": {"answer": GOLD, "completions": ANSWERS}},
    "format": {"columns": {"completions": ANSWERS}},
    "per_reward": {"exceptions": BATCH | NAMED},
    "gae": {"exceptions": BATCH | CRITIC},
    "policy": {"knobs": {"temperature": 0.7}},
    "bounded": {"knobs": {"low": -0.5, "high": 0.5}},
    "off_policy_mask": {"knobs": {"threshold": 0.05}},
    "adaptive_entropy": {"knobs": {"target": 2.0}},
    "micro_batch_token_mean": {"exceptions": {"split": "it is TRL's bnpo: a mean over micro-batches of their means"}},
}
"""Part → its examples, the knobs without a default, and its exceptions, if it has any."""
VARIANTS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("nonzero_std", {"reward": "format"}, {}),
    ("group_relative", {"scale": "none"}, {}),
    ("group_relative", {"scale": "batch"}, BATCH),
    ("group_relative", {"scale": "centered_batch"}, BATCH),
    ("group_relative", {"unbiased": False, "eps": 0.0}, {}),
    ("group_relative", {"singleton": "reward"}, LONE),
    ("leave_one_out", {"scale": "others"}, {}),
    ("leave_one_out", {"singleton": "reward"}, LONE),
    ("leave_one_out", {"scale": "batch"}, BATCH),
    ("per_reward", {"weights": {"format": 0.5}, "over": "tokens"}, BATCH | NAMED),
    ("gae", {"whitened": False, "lam_critic": 1.0, "by_length": 0.5}, CRITIC),
    ("gae", {"whitened": False}, CRITIC),
    ("gae", {"whitened": False, "masked_tokens": "discount"}, CRITIC),
    ("value_loss", {"epsilon": None}, {}),
    ("clip", {"epsilon_high": 0.28, "delta": 3.0}, {}),
    ("cispo", {"epsilon_low": 0.2}, {}),
    ("cispo", {"epsilon_high": -0.8}, {}),
    ("kl", {"estimator": "k1"}, {}),
    ("kl", {"estimator": "k2"}, {}),
    ("kl", {"bound": 0.05}, {}),
    ("kl", {"importance_weighted": True}, {"optional": "asked to weigh by a ratio, it must not go on without one"}),
    ("kl", {"estimator": "k1", "straight_through": True}, {}),
    ("kl", {"estimator": "abs"}, {}),
    ("sequence_mean", {"empty_completions": "included"}, COUNTED),
    ("sequence_sum", {"empty_completions": "included"}, COUNTED),
    ("fixed_length", {"over": "batch"}, {}),
]
"""Part, other knobs than the defaults, and the exceptions with them."""
ELSEWHERE = {
    "trl": "needs somebody's function: test_foreign_rewards of rlm-interop",
    "successes": "test_successes",
    "dataset": "needs files: test_environments",
    "pretrained": "needs a checkpoint: test_models",
}
PARTS = [part for part in Registry() if part.plugin == BUILTIN and part.name not in ELSEWHERE]
LAWLESS = ("rlm_trainers", "rlm_callbacks", "rlm_settings")
"""Hooks without laws, whose parts `test_imports` checks."""
for part in PARTS:
    if part.hook not in LAWLESS:
        options = WITH_DEFAULTS.get(part.name, {})
        globals()[f"test_{part.hook}_{part.name}"] = conformance(part.hook, part.target, **options)
for number, (name, knobs, exceptions) in enumerate(VARIANTS):
    named = [part for part in PARTS if part.name == name and part.hook != "rlm_algorithms"]
    (part,) = (part for part in named if knobs.keys() <= part.knobs.model_fields.keys())
    globals()[f"test_{name}_{number}"] = conformance(part.hook, part.target, knobs=knobs, exceptions=exceptions)
