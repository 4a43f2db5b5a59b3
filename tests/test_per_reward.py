"""GDPO against plain Python, and cases that a sum of rewards cannot separate."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
import torch
from hypothesis import given
from rlm_testing import batches

from rlm_plugins.builtin.advantages import per_reward
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.statistics import whiten


def standard(rewards: list[float], group: list[int], eps: float) -> list[float]:
    """Return the standard score of each reward among the scored completions of its group."""

    def one(reward: float, label: int) -> float:
        there = [r for r, g in zip(rewards, group, strict=True) if g == label and not math.isnan(r)]
        if math.isnan(reward) or len(set(there)) < 2:
            return 0.0
        return (reward - statistics.mean(there)) / (statistics.stdev(there) + eps)

    return [one(r, g) for r, g in zip(rewards, group, strict=True)]


def summed(batch: Batch, weights: dict[str, float], eps: float) -> list[float]:
    group = batch.group.tolist()
    scores = [[weights[name] * x for x in standard(r.tolist(), group, eps)] for name, r in batch.named_rewards.items()]
    return [math.fsum(row) for row in zip(*scores, strict=True)]


@given(batches())
def test_summed_scores_are_divided_by_the_batch_std(batch: Batch) -> None:
    total = summed(batch, {"accuracy": 1.0, "format": 0.5}, 1e-4)
    found = per_reward(batch.named_rewards, batch.group, batch.mask, weights={"format": 0.5})
    spread = statistics.stdev(total) if len(total) > 1 else 0.0
    assert found.tolist() == pytest.approx([x / (spread + 1e-4) for x in total], abs=1e-9)


@given(batches())
def test_token_average_weights_long_completions_more(batch: Batch) -> None:
    total = torch.tensor(summed(batch, {"accuracy": 1.0, "format": 0.5}, 1e-6), dtype=torch.float64)
    knobs = {"weights": {"format": 0.5}, "over": "tokens", "eps": 1e-6}
    found = per_reward(batch.named_rewards, batch.group, batch.mask, **knobs)
    torch.testing.assert_close(found, whiten(total.unsqueeze(1).expand(batch.mask.shape), batch.mask))


def test_a_group_in_which_nothing_varies_is_exactly_zero() -> None:
    named = {"a": torch.tensor([0.3] * 7 + [0.0, 1.0]), "b": torch.tensor([0.1] * 7 + [5.0, 2.0])}
    found = per_reward(named, torch.tensor([0] * 7 + [1] * 2), torch.ones(9, 1, dtype=torch.bool), eps=0.0)
    assert not found[:7].any()
    assert found.isfinite().all()


@pytest.mark.parametrize("over", ["completions", "tokens"])
@pytest.mark.parametrize("eps", [0.0, 1e-4])
def test_cancelling_rewards_have_zero_advantage(over: Any, eps: float) -> None:
    """Scores of `right` and `short` are opposite up to eps and rounding; whitening would amplify the rest."""
    named = {"right": torch.tensor([0.1, 0.0, 0.1, 0.0]), "short": torch.tensor([0.0, 9.0, 0.0, 9.0])}
    group, mask = torch.tensor([0, 0, 1, 1]), torch.tensor([[True, True], [True, False], [True, True], [True, True]])
    assert not per_reward(named, group, mask, over=over, eps=eps).any()


def test_singleton_reward_adds_the_reward_of_a_group_of_one() -> None:
    """verl uses a mean of 0 and a std of 1 for it."""
    rewards = {"a": torch.tensor([2.0, 1.0, 0.0]), "b": torch.tensor([float("nan"), 3.0, 3.0])}
    group, mask = torch.tensor([7, 1, 1]), torch.ones(3, 1, dtype=torch.bool)
    pair = 0.5 / (math.sqrt(0.5) + 1e-4)
    total = [2.0, pair, -pair]
    for singleton, expected in (("reward", total), ("zero", [0.0, pair, -pair])):
        actual = per_reward(rewards, group, mask, singleton=singleton)  # type: ignore[arg-type]
        spread = statistics.stdev(expected) + 1e-4
        assert actual.tolist() == pytest.approx([x / spread for x in expected], rel=1e-5)
