"""Optimal baseline, GPG and pass@k against plain Python, by enumeration, and at the edges."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from fixtures_equations import equation, part, scoring
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.group_advantages import gpg, optimal_baseline, pass_at_k
from rlm_testing import batches

from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.builtin.filters import nonzero_std
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.step import score
from rlm_plugins.errors import PartError

one_group = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=7)
Tensor = torch.Tensor


def alone(rewards: list[float]) -> tuple[Tensor, Tensor]:
    """Return rewards and labels of a single group."""
    return torch.tensor(rewards, dtype=torch.float64), torch.zeros(len(rewards), dtype=torch.long)


# ---- optimal baseline


@given(batches())
def test_the_baseline_is_the_mean_over_tokens(batch: Batch) -> None:
    actual = optimal_baseline(batch.rewards, batch.mask, batch.group)
    for label in batch.group.unique():
        rows = [i for i, g in enumerate(batch.group) if g == label]
        rewards, lengths = batch.rewards[rows].tolist(), batch.mask[rows].sum(1).tolist()
        tokens = [r for r, n in zip(rewards, lengths, strict=True) for _ in range(n)]
        informative = tokens and len(set(rewards)) > 1
        expected = [r - statistics.mean(tokens) if informative else 0.0 for r in rewards]
        assert actual[rows].tolist() == pytest.approx(expected)


def test_the_baseline_has_the_least_variance_when_a_gradient_grows_with_the_root_of_its_length() -> None:
    """Σ n (r − b)² is the variance of the estimate; no other b makes it smaller."""
    mask = torch.arange(9) < torch.tensor([[9], [2], [4]])
    rewards = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    best = optimal_baseline(rewards, mask, torch.zeros(3, dtype=torch.long))

    def variance(advantages: Tensor) -> float:
        return float((mask.sum(1) * advantages**2).sum())

    assert all(variance(best) < variance(best + step) for step in (-0.1, -0.001, 0.001, 0.1))


@given(batches())
def test_equal_lengths_give_the_plain_mean(batch: Batch) -> None:
    found = optimal_baseline(batch.rewards, torch.ones_like(batch.mask), batch.group)
    torch.testing.assert_close(found, group_relative(batch.rewards, batch.group, scale="none"))


# ---- GPG


@given(batches())
def test_gpg_rescales_for_completions_without_gradient(batch: Batch) -> None:
    centred = group_relative(batch.rewards, batch.group, scale="none")
    silent = [len(set(batch.rewards[batch.group == g].tolist())) == 1 for g in batch.group]
    alpha = len(silent) / max(1, len(silent) - sum(silent))
    torch.testing.assert_close(gpg(batch.rewards, batch.group), alpha * centred)


@given(batches())
def test_gpg_as_verl_counts(batch: Batch) -> None:
    centred = group_relative(batch.rewards, batch.group, scale="none")
    alpha = len(batch.rewards) / max(1, sum(r != 0 for r in batch.rewards.tolist()))
    torch.testing.assert_close(gpg(batch.rewards, batch.group, counted="nonzero_rewards"), alpha * centred)


def test_gpg_without_uniform_groups_is_reward_minus_mean() -> None:
    """After `nonzero_std` has dropped them, no scaling is left."""
    batch = scoring([1.0, 0.0, 1.0, 1.0], group=[0, 0, 1, 1], named_rewards={})
    whole = score(batch, equation(advantage=part("rlm_advantages", gpg)))
    sieve = [part("rlm_filters", nonzero_std)]
    kept = score(batch, equation(filters=sieve, advantage=part("rlm_advantages", gpg)))
    assert whole.advantages.squeeze(1).tolist() == [1.0, -1.0, 0.0, 0.0]
    assert kept.advantages.squeeze(1).tolist() == [0.5, -0.5, 0.0, 0.0]


def test_gpg_of_an_uninformative_batch_is_zero() -> None:
    assert not gpg(torch.full((6,), 0.3), torch.arange(6) // 3).any()


# ---- pass@k


def by_enumeration(rewards: list[float], k: int) -> list[float]:
    """Score each team of k by its best reward, and average the standard scores of a completion's teams."""
    rows = range(len(rewards))
    worth = {team: max(rewards[i] for i in team) for team in combinations(rows, k)}
    if len({*worth.values()}) < 2:
        return [0.0] * len(rewards)
    mean, spread = statistics.mean(worth.values()), statistics.pstdev(worth.values())
    return [statistics.mean((x - mean) / spread for team, x in worth.items() if i in team) for i in rows]


@given(one_group, st.integers(1, 8))
def test_pass_at_k_is_the_mean_over_subsets(rewards: list[float], k: int) -> None:
    assert pass_at_k(*alone(rewards), k=k).tolist() == pytest.approx(by_enumeration(rewards, k))


def test_first_correct_completion_has_the_largest_advantage() -> None:
    praise = [float(pass_at_k(*alone([1.0] * right + [0.0] * (8 - right)), k=4)[0]) for right in range(1, 8)]
    assert praise == sorted(praise, reverse=True)
    assert praise[0] > 0
    assert praise[4:] == [0.0, 0.0, 0.0]  # five right of eight: every team of four has one


@pytest.mark.parametrize("size", [1, 3, 4])
def test_group_of_at_most_k_has_zero_advantage(size: int) -> None:
    assert not pass_at_k(*alone([1.0] + [0.0] * (size - 1)), k=4).any()


@pytest.mark.parametrize("other", [0.1, -1.0, 1.1])
def test_non_binary_rewards_are_rejected(other: float) -> None:
    with pytest.raises(PartError, match=rf"got the reward {other:g}\n  allowed: 0 or 1\n  hint: threshold: 1.0"):
        pass_at_k(*alone([0.0, other, 1.0]))


def test_threshold_decides_correctness() -> None:
    rewards, group = alone([1.1, 0.1, 1.0, -1.0])
    expected = pass_at_k(*alone([1.0, 0.0, 1.0, 0.0]), k=2)
    assert torch.equal(pass_at_k(rewards, group, k=2, threshold=1.0), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_groups_of_any_size_in_lower_precision(dtype: torch.dtype) -> None:
    rewards, group = torch.tensor([1, 0, 0, 1, 0, 0, 0], dtype=dtype), torch.tensor([0, 0, 0, 5, 5, 5, 5])
    actual = pass_at_k(rewards, group, k=2)
    assert actual.dtype == dtype
    expected = by_enumeration([1.0, 0.0, 0.0], 2) + by_enumeration([1.0, 0.0, 0.0, 0.0], 2)
    assert actual.tolist() == pytest.approx(expected, rel=0.02)


def test_large_groups_do_not_overflow() -> None:
    rewards, group = alone([1.0] * 3 + [0.0] * 509)
    found = pass_at_k(rewards, group, k=64)
    missed = math.comb(509, 64) / math.comb(512, 64)
    assert float(found[0]) == pytest.approx(math.sqrt(missed / (1 - missed)))


@given(batches())
def test_advantages_of_a_group_sum_to_zero(batch: Batch) -> None:
    """For the optimal baseline the sum is weighted by length, for the others by completion."""
    batch = replace(batch, rewards=(batch.rewards > 0).double())
    weighted = optimal_baseline(batch.rewards, batch.mask, batch.group) * batch.mask.sum(1)
    plain = [gpg(batch.rewards, batch.group), pass_at_k(batch.rewards, batch.group, k=2)]
    for advantages in (weighted, *plain):
        sums = [float(advantages[batch.group == g].sum()) for g in batch.group.unique()]
        assert sums == pytest.approx([0.0] * len(sums), abs=1e-9)
