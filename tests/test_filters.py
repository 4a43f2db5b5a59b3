"""Which groups teach."""

from __future__ import annotations

import pytest
import torch
from by_hand import equation, part, scoring
from hypothesis import given, settings

from rlm_plugins.batch import Batch
from rlm_plugins.builtin.filters import nonzero_spread
from rlm_plugins.builtin.shapers import overlong
from rlm_plugins.errors import RecipeError
from rlm_plugins.step import score
from rlm_plugins.testing import batches

quick = settings(max_examples=60, deadline=None, database=None, derandomize=True)


@quick
@given(batches())
def test_a_group_teaches_when_two_of_its_rewards_differ(batch: Batch) -> None:
    found = nonzero_spread(batch.rewards, batch.named_rewards, batch.group)
    for row, label in enumerate(batch.group):
        assert found[row] == (len(batch.rewards[batch.group == label].unique()) > 1)


@quick
@given(batches())
def test_rows_without_the_named_reward_are_not_looked_at(batch: Batch) -> None:
    found = nonzero_spread(batch.rewards, batch.named_rewards, batch.group, reward="format")
    for row, label in enumerate(batch.group):
        scores = batch.named_rewards["format"][batch.group == label]
        assert found[row] == (len(scores[~scores.isnan()].unique()) > 1)


def test_equal_rewards_are_no_spread_however_they_round() -> None:
    """The std of eight times 0.3 is not 0 in float32; max − min is."""
    rewards = torch.full((8,), 0.3)
    assert rewards.std() > 0
    assert not nonzero_spread(rewards, {}, torch.zeros(8, dtype=torch.long)).any()


def test_judged_by_accuracy_a_group_of_wrong_rows_of_different_lengths_is_dropped() -> None:
    """DAPO filters before the length is punished; on the shaped sum such a group would stay."""
    named = {"accuracy": torch.tensor([0.0, 0.0, 1.0, 0.0])}
    batch = scoring([0.0, 0.0, 1.0, 0.0], group=[0, 0, 1, 1], lengths=[1, 4, 4, 4], named_rewards=named)
    shaper = part("rlm_shapers", overlong, max_length=4, cache=2)
    kept = {
        reward: score(batch, equation(shapers=[shaper], filters=[part("rlm_filters", nonzero_spread, reward=reward)]))
        for reward in (None, "accuracy")
    }
    assert kept[None].mask.any(1).tolist() == [True, True, True, True]
    assert kept["accuracy"].mask.any(1).tolist() == [False, False, True, True]


def test_a_reward_nobody_gives_is_refused_by_its_name() -> None:
    with pytest.raises(RecipeError, match="did you mean 'accuracy'"):
        nonzero_spread(torch.ones(2), {"accuracy": torch.ones(2)}, torch.tensor([0, 0]), reward="accurcy")
