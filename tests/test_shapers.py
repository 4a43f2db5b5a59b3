"""Shaped rewards and filters against their formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from fixtures_equations import equation, part, scoring
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.filters import accuracy_band, first_k, no_truncated_groups
from rlm_algorithms.reward_combinations import product, sigmoid_shaping
from rlm_testing import batches

from rlm_plugins.builtin.shapers import bounded, kl_in_reward, nonzero_std, overlong
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.step import score
from rlm_plugins.errors import RecipeError


def row(length: int, width: int = 40) -> torch.Tensor:
    return (torch.arange(width) < length).unsqueeze(0)


@given(st.integers(0, 40), st.integers(1, 30), st.integers(1, 30), st.floats(0.0, 3.0))
def test_overlong_is_paid_for_in_proportion(length: int, limit: int, cache: int, factor: float) -> None:
    cache = min(cache, limit)
    reward = torch.tensor([0.5], dtype=torch.float64)
    actual = overlong(reward, row(length), 99, max_length=limit, cache=cache, factor=factor).item()
    if length <= limit - cache:
        expected = 0.0
    elif length <= limit:
        expected = ((limit - cache) - length) / cache
    else:
        expected = -1.0
    assert actual == pytest.approx(0.5 + factor * expected)


def test_soft_overlong_interval_defaults_to_a_fifth() -> None:
    rewards = [overlong(torch.zeros(1), row(n), 20).item() for n in (0, 16, 17, 18, 20, 40)]
    assert rewards == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]


def test_a_limit_of_a_few_tokens_still_means_something() -> None:
    assert [overlong(torch.zeros(1), row(n), 3).item() for n in (2, 3)] == [0.0, -1.0]


@given(batches(), st.sampled_from([0.0, 0.05, 1.0]))
def test_drift_is_paid_for_where_it_happens(batch: Batch, beta: float) -> None:
    actual = kl_in_reward(batch.old_logp, batch.ref_logp, batch.mask, beta=beta)
    expected = -beta * (batch.old_logp - batch.ref_logp)
    torch.testing.assert_close(actual[batch.mask], expected[batch.mask])
    assert not actual[~batch.mask].any()


def test_kl_in_sequence_reward_is_the_sequence_divergence() -> None:
    old, ref = torch.tensor([[-1.0, -2.0], [-1.0, -9.0]]), torch.tensor([[-2.0, -4.0], [-1.5, -1.0]])
    batch = scoring([1.0, 1.0], lengths=[2, 1], old_logp=old, ref_logp=ref)
    found = score(batch, equation(shapers=[part("rlm_shapers", kl_in_reward, beta=0.1)]))
    torch.testing.assert_close(found.rewards, torch.tensor([1 - 0.3, 1 - 0.05]))
    torch.testing.assert_close(found.token_rewards, torch.tensor([[-0.1, 0.8], [0.95, 0.0]]))


@pytest.mark.parametrize("knobs", [{"max_length": 0}, {"cache": -1}, {"cache": 0.5}])
def test_lengths_that_are_none_are_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=next(iter(knobs))):
        part("rlm_shapers", overlong, **knobs)


named_scores = st.lists(st.tuples(st.floats(-30, 30), st.sampled_from([0.0, 1.0])), min_size=1, max_size=5)


@given(named_scores, st.sampled_from([0.5, 2.0]))
def test_the_verifier_has_the_last_word(scores: list[tuple[float, float]], alpha: float) -> None:
    grades, rights = (torch.tensor(column, dtype=torch.float64) for column in zip(*scores, strict=True))
    actual = sigmoid_shaping({"rm": grades, "right": rights}, score="rm", verifier="right", alpha=alpha)
    expected = [1 / (1 + math.exp(-alpha * grade)) + (right - 1) for grade, right in scores]
    assert actual.tolist() == pytest.approx(expected)
    assert all((r > 0) == (right == 1) for r, (_, right) in zip(actual.tolist(), scores, strict=True))


def test_without_a_grade_a_right_answer_is_worth_a_half() -> None:
    scores = {"reward_model": torch.tensor([torch.nan, torch.nan, 4.0]), "accuracy": torch.tensor([1, 0, torch.nan])}
    found = sigmoid_shaping(scores)
    assert found.tolist() == pytest.approx([0.5, -0.5, 1 / (1 + math.exp(-2)) - 1])


@given(batches())
def test_product_is_zero_if_a_factor_is_zero(batch: Batch) -> None:
    found = product(batch.named_rewards, of=["accuracy", "format"])
    pairs = zip(*(x.tolist() for x in batch.named_rewards.values()), strict=True)
    assert found.tolist() == pytest.approx([0.0 if a != a or f != f else a * f for a, f in pairs])


@pytest.mark.parametrize(
    ("shaper", "knobs", "place"),
    [
        (sigmoid_shaping, {"score": "accurcy"}, "sigmoid_shaping.score"),
        (sigmoid_shaping, {"score": "accuracy", "verifier": "accurcy"}, "sigmoid_shaping.verifier"),
        (product, {"of": ["accuracy", "accurcy"]}, "product.of"),
    ],
)
def test_unknown_reward_is_rejected_by_name(shaper: Any, knobs: dict[str, Any], place: str) -> None:
    with pytest.raises(RecipeError, match=f"{place}: unknown reward 'accurcy'(.|\n)*did you mean 'accuracy'"):
        shaper({"accuracy": torch.ones(2)}, **knobs)


@pytest.mark.parametrize("of", [[], "accuracy"])
def test_a_product_of_nothing_is_refused(of: Any) -> None:
    with pytest.raises(RecipeError, match="of"):
        part("rlm_shapers", product, of=of)


def test_bounded_clips_the_reward() -> None:
    rewards = torch.tensor([-2.0, 0.25, 3.0])
    assert bounded(rewards, low=-1.0, high=1.0).tolist() == [-1.0, 0.25, 1.0]
    assert bounded(rewards, high=1.0).tolist() == [-2.0, 0.25, 1.0]
    for knobs in ({"low": None, "high": None}, {"low": 1.0, "high": 1.0}):
        with pytest.raises(RecipeError, match="expected"):
            bounded.validate(None, **knobs)


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


def test_first_completions_of_interleaved_groups_are_kept() -> None:
    group = torch.tensor([3, 1, 3, 1, 3, 1, 1])
    assert first_k(group, k=2).tolist() == [True, True, True, True, False, False, False]
