"""Advantages against plain Python, against each other, and at the edges."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import pytest
import torch
import trl_formulas
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.group_advantages import batch_whitened
from rlm_testing import batches

from rlm_plugins.builtin.advantages import Scale, gae, group_relative, leave_one_out
from rlm_plugins.equation.batch import Batch

SCALES: tuple[Scale, ...] = ("group", "batch", "centered_batch", "none")
Tensor = torch.Tensor


def by_group(batch: Batch, say: Callable[[float, list[float]], float]) -> Tensor:
    """Return `say(reward, all rewards of its group)` for every completion, in plain Python."""
    found = []
    for reward, label in zip(batch.rewards.tolist(), batch.group.tolist(), strict=True):
        group = [r for r, g in zip(batch.rewards.tolist(), batch.group.tolist(), strict=True) if g == label]
        found.append(0.0 if len(set(group)) == 1 else say(reward, group))
    return torch.tensor(found, dtype=torch.float64)


# ---- group relative, leave one out


@given(batches())
def test_group_relative_is_the_standard_score_of_the_group(batch: Batch) -> None:
    expected = by_group(batch, lambda r, g: (r - statistics.mean(g)) / (statistics.stdev(g) + 1e-4))
    torch.testing.assert_close(group_relative(batch.rewards, batch.group), expected)


@given(batches())
def test_without_scale_it_is_reward_minus_group_mean(batch: Batch) -> None:
    expected = by_group(batch, lambda r, g: r - statistics.mean(g))
    torch.testing.assert_close(group_relative(batch.rewards, batch.group, scale="none"), expected)


@given(batches())
def test_batch_scale_divides_by_the_std_of_raw_rewards(batch: Batch) -> None:
    rewards = batch.rewards.tolist()
    spread = statistics.stdev(rewards) if len(rewards) > 1 else 0.0
    expected = by_group(batch, lambda r, g: (r - statistics.mean(g)) / (spread + 0.01))
    torch.testing.assert_close(group_relative(batch.rewards, batch.group, scale="batch", eps=0.01), expected)


@given(batches())
def test_leave_one_out_is_the_reward_less_the_mean_of_the_others(batch: Batch) -> None:
    actual = leave_one_out(batch.rewards, batch.group)
    expected = by_group(batch, lambda r, g: r - (math.fsum(g) - r) / (len(g) - 1))
    torch.testing.assert_close(actual, expected)


@given(batches())
def test_without_bessel_the_std_is_that_of_a_population(batch: Batch) -> None:
    found = group_relative(batch.rewards, batch.group, unbiased=False, eps=0.0)
    torch.testing.assert_close(found, by_group(batch, lambda r, g: (r - statistics.mean(g)) / statistics.pstdev(g)))


@given(batches())
def test_batch_scale_ignores_differences_between_prompts(batch: Batch) -> None:
    centred = by_group(batch, lambda r, g: r - statistics.mean(g))
    spread = statistics.stdev(centred.tolist()) if len(centred) > 1 else 0.0
    found = group_relative(batch.rewards, batch.group, scale="centered_batch", eps=0.01)
    torch.testing.assert_close(found, centred / (spread + 0.01))
    moved = group_relative(batch.rewards + batch.group, batch.group, scale="centered_batch", eps=0.01)
    torch.testing.assert_close(found, moved)


@given(batches())
def test_mean_and_std_may_both_be_those_of_the_others(batch: Batch) -> None:
    def say(reward: float, group: list[float]) -> float:
        others = list(group)
        others.remove(reward)
        spread = statistics.stdev(others) + 1e-4 if len(set(others)) > 1 else 1.0
        return (reward - statistics.mean(others)) / spread

    torch.testing.assert_close(leave_one_out(batch.rewards, batch.group, scale="others"), by_group(batch, say))


def test_conventions_of_one_name() -> None:
    """One correct completion of eight has a different advantage in the GRPO of each library."""
    rewards, group = torch.tensor([1.0] + [0.0] * 7, dtype=torch.float64), torch.zeros(8, dtype=torch.long)
    found = {
        "trl": group_relative(rewards, group),
        "verl": group_relative(rewards, group, eps=1e-6),
        "population": group_relative(rewards, group, unbiased=False, eps=0.0),
        "others": leave_one_out(rewards, group, scale="others"),
        "centred": group_relative(rewards, group, scale="none"),
    }
    winner = {name: round(float(advantages[0]), 3) for name, advantages in found.items()}
    assert winner == {"trl": 2.474, "verl": 2.475, "population": 2.646, "others": 1.0, "centred": 0.875}


def test_leave_one_out_is_trls_bit_by_bit() -> None:
    for seed in range(20):
        rewards = torch.rand(64, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(leave_one_out(rewards, torch.arange(64) // 8), trl_formulas.rloo(rewards, 8))


@pytest.mark.parametrize("level", [0.3, 0.1 + 0.2, 1 / 3, 1e6 + 0.1, -0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_group_without_spread_is_exactly_zero_beside_one_with_spread(level: float, dtype: torch.dtype) -> None:
    """The mean of equal numbers is often rounded to another number, at any scale."""
    rewards = torch.tensor([level] * 7 + [0.0, 1.0, 2.0], dtype=dtype)
    group = torch.tensor([0] * 7 + [1] * 3)
    found = {
        **{scale: group_relative(rewards, group, scale=scale, eps=0.0) for scale in SCALES},
        "leave_one_out": leave_one_out(rewards, group),
        "others": leave_one_out(rewards, group, scale="others", eps=0.0),
    }
    for name, advantages in found.items():
        assert not advantages[:7].any(), name
        assert advantages[7:].any(), name
        assert advantages.isfinite().all(), name


def test_noise_of_rounding_would_have_been_amplified() -> None:
    """Rounding noise of equal rewards, standardized with OpenRLHF's eps alone, is far from zero."""
    rewards = torch.full((8,), 0.3)
    noise = (rewards - rewards.mean()) / (rewards.std() + 1e-9)
    assert noise.abs().max() > 0.1
    assert not group_relative(rewards, torch.zeros(8, dtype=torch.long), eps=1e-9).any()


def test_group_of_one_has_zero_advantage() -> None:
    rewards, group = torch.tensor([5.0, 1.0, 0.0]), torch.tensor([9, 4, 4])
    for advantages in (group_relative(rewards, group), leave_one_out(rewards, group)):
        assert advantages.tolist()[0] == 0.0
        assert advantages[1:].any()


def test_singleton_group_has_no_advantage() -> None:
    for scale in SCALES:
        assert group_relative(torch.tensor([2.0]), torch.tensor([0]), scale=scale).tolist() == [0.0]


# ---- whitened over the batch


def test_long_completion_counts_once_per_token() -> None:
    mask = torch.tensor([[True, True, True], [True, False, False]])
    rewards = torch.tensor([0.0, 4.0], dtype=torch.float64)
    spread = torch.tensor([[0.0, 0.0, 0.0], [4.0, 0.0, 0.0]], dtype=torch.float64)
    found = batch_whitened(rewards, spread, torch.tensor([0, 1]), mask)
    std = statistics.stdev([0, 0, 0, 4])
    torch.testing.assert_close(found[mask], torch.tensor([-1, -1, -1, 3], dtype=torch.float64) / std)


def test_whitening_uses_returns() -> None:
    """In REINFORCE++ with KL in the reward, the return of a token is the discounted sum of later token rewards."""
    mask = torch.tensor([[True, True, False, True], [True, False, False, False]])
    dense = torch.tensor([[0.0, 2.0, 9.0, 4.0], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    actual = batch_whitened(dense.sum(1), dense, torch.tensor([0, 1]), mask, gamma=0.5)
    to_come = [0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4.0, 1.0]
    expected = [(x - statistics.mean(to_come)) / statistics.stdev(to_come) for x in to_come]
    torch.testing.assert_close(actual[mask], torch.tensor(expected, dtype=torch.float64))


@given(batches())
def test_baseline_variant_ignores_prompt_difficulty(batch: Batch) -> None:
    """Adding a constant to the rewards of a group changes nothing."""
    bonus = batch.group.double()
    last = batch.token_rewards + bonus.unsqueeze(1) * _last(batch.mask)
    now = batch_whitened(batch.rewards, batch.token_rewards, batch.group, batch.mask, center_by_group=True)
    then = batch_whitened(batch.rewards + bonus, last, batch.group, batch.mask, center_by_group=True)
    torch.testing.assert_close(now, then)


def _last(mask: Tensor) -> Tensor:
    return mask & (mask.flip(1).cumsum(1).flip(1) == 1)


def test_whitening_with_population_variance() -> None:
    mask, rewards = torch.ones(3, 1, dtype=torch.bool), torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64)
    found = batch_whitened(rewards, rewards.unsqueeze(1), torch.arange(3), mask, unbiased=False, eps=0.0)
    torch.testing.assert_close(found.squeeze(1), (rewards - 2) / statistics.pstdev([0, 1, 5]))


# ---- GAE


def double_sum(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> list[float]:
    """Compute Âₜ = Σₗ (γλ)ˡ (rₜ₊ₗ + γ Vₜ₊ₗ₊₁ − Vₜ₊ₗ) of one completion without masked tokens, as in the paper."""
    r, v = rewards.tolist(), [*values.tolist(), 0.0]
    steps = range(len(r))
    return [
        math.fsum((gamma * lam) ** (s - t) * (r[s] + gamma * v[s + 1] - v[s]) for s in steps if s >= t) for t in steps
    ]


@given(batches(), st.sampled_from([1.0, 0.9, 0.0]), st.sampled_from([1.0, 0.95, 0.0]))
def test_gae_is_the_double_sum_over_the_trained_tokens(batch: Batch, gamma: float, lam: float) -> None:
    """Masked tokens are skipped, as if they were removed."""
    advantages, returns = gae(batch.returns, batch.values, batch.mask, gamma=gamma, lam=lam, whitened=False)
    for row, mask in enumerate(batch.mask):
        expected = double_sum(batch.returns[row, mask], batch.values[row, mask], gamma, lam)
        assert advantages[row, mask].tolist() == pytest.approx(expected, abs=1e-9)
    torch.testing.assert_close(returns, (advantages + batch.values).where(batch.mask, 0.0))
    assert not advantages[~batch.mask].any()


@given(batches(), st.sampled_from([1.0, 0.9]), st.sampled_from([1.0, 0.95]))
def test_gae_over_untrained_tokens_is_the_double_sum_over_all_tokens(batch: Batch, gamma: float, lam: float) -> None:
    """Masked tokens discount, with reward and value 0; padding after the end adds nothing."""
    knobs = {"gamma": gamma, "lam": lam, "whitened": False, "masked_tokens": "discount"}
    advantages, _ = gae(batch.returns, batch.values, batch.mask, **knobs)
    quiet = [x.where(batch.mask, 0.0) for x in (batch.returns, batch.values)]
    for row, mask in enumerate(batch.mask):
        expected = torch.tensor(double_sum(quiet[0][row], quiet[1][row], gamma, lam), dtype=torch.float64)
        torch.testing.assert_close(advantages[row], expected.where(mask, 0.0))


@given(batches())
def test_whitening_moves_the_advantages_and_not_the_returns(batch: Batch) -> None:
    plain, returns = gae(batch.token_rewards, batch.values, batch.mask, whitened=False)
    white, same = gae(batch.token_rewards, batch.values, batch.mask)
    assert torch.equal(returns, same)
    live = plain[batch.mask]
    if len(set(live.tolist())) > 1:
        expected = (live - live.mean()) / live.std()
        torch.testing.assert_close(white[batch.mask], expected, rtol=1e-3, atol=1e-6)
