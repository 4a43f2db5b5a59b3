"""Filters: the groups that are kept."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.filters import accuracy_band, no_truncated_groups
from rlm_testing import batches

from rlm_plugins.builtin.shapers import nonzero_std
from rlm_plugins.equation.batch import Batch


@given(batches())
def test_group_with_different_rewards_is_kept(batch: Batch) -> None:
    found = nonzero_std(batch.rewards, batch.named_rewards, batch.group)
    for row, label in enumerate(batch.group):
        assert found[row] == (len(batch.rewards[batch.group == label].unique()) > 1)


@given(batches())
def test_completions_without_the_named_reward_are_ignored(batch: Batch) -> None:
    found = nonzero_std(batch.rewards, batch.named_rewards, batch.group, reward="format")
    for row, label in enumerate(batch.group):
        scores = batch.named_rewards["format"][batch.group == label]
        assert found[row] == (len(scores[~scores.isnan()].unique()) > 1)


def test_equal_rewards_are_no_spread_however_they_round() -> None:
    """The std of eight times 0.3 is not 0 in float32; max − min is."""
    rewards = torch.full((8,), 0.3)
    assert rewards.std() > 0
    assert not nonzero_std(rewards, {}, torch.zeros(8, dtype=torch.long)).any()


# ---- accuracy band


@given(batches(), st.sampled_from(["accuracy", "format"]))
def test_group_with_mean_in_the_band_is_kept(batch: Batch, reward: str) -> None:
    found = accuracy_band(batch.named_rewards, batch.group, reward=reward, low=0.25, high=0.75)
    for row, label in enumerate(batch.group):
        scores = [s for s in batch.named_rewards[reward][batch.group == label].tolist() if s == s]
        assert found[row] == (bool(scores) and 0.25 <= sum(scores) / len(scores) <= 0.75)


def test_the_band_includes_its_ends() -> None:
    """In float32 one of five is 0.2 and four of five are 0.8."""
    scores = {"accuracy": torch.tensor([1.0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1])}
    assert accuracy_band(scores, torch.arange(15) // 5).tolist() == [True] * 10 + [False] * 5


# ---- keep k


# ---- truncated groups


@given(batches())
def test_truncated_completion_drops_its_group(batch: Batch) -> None:
    found = no_truncated_groups(batch.truncated, batch.group)
    for row, label in enumerate(batch.group):
        assert found[row] == (not batch.truncated[batch.group == label].any())


def test_nonzero_std_keeps_groups_of_one_with_its_knob() -> None:
    rewards, group = torch.tensor([1.0, 0.0, 1.0, 1.0, 5.0]), torch.tensor([0, 0, 1, 1, 2])
    assert nonzero_std(rewards, {}, group).tolist() == [True, True, False, False, False]
    assert nonzero_std(rewards, {}, group, singleton="reward").tolist() == [True, True, False, False, True]
    only = {"a": torch.tensor([float("nan"), 0.0, 1.0, 1.0, float("nan")])}
    assert nonzero_std(rewards, only, group, reward="a", singleton="reward").tolist() == [True, True, *[False] * 3]
