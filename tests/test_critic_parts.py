"""Parts of a critic against plain Python and by hand: λ by role and by length, losses, KL."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
import torch
from fixtures_equations import equation, part, scoring
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.adaptive_kl import AdaptiveKLInReward
from rlm_testing import batches
from test_advantages import double_sum

from rlm_plugins.builtin.advantages import gae
from rlm_plugins.builtin.penalties import value_loss
from rlm_plugins.builtin.shapers import kl_in_reward
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.step import score
from rlm_plugins.registry.part import Part

# ---- λ


@given(batches(), st.sampled_from([1.0, 0.9]), st.sampled_from([1.0, 0.8, 0.0]))
def test_critic_lambda_is_separate(batch: Batch, gamma: float, lam_critic: float) -> None:
    """The advantages are those of `lam`; the returns are V plus the advantages of `lam_critic`."""
    knobs = {"gamma": gamma, "lam": 0.5, "whitened": False}
    advantages, returns = gae(batch.token_rewards, batch.values, batch.mask, lam_critic=lam_critic, **knobs)
    assert torch.equal(advantages, gae(batch.token_rewards, batch.values, batch.mask, **knobs)[0])
    for row, mask in enumerate(batch.mask):
        rewards, values = batch.token_rewards[row, mask], batch.values[row, mask]
        surprise = double_sum(rewards, values, gamma, lam_critic)
        assert returns[row, mask].tolist() == pytest.approx(
            [a + v for a, v in zip(surprise, values.tolist(), strict=True)]
        )
    assert not returns[~batch.mask].any()


@given(batches())
def test_lambda_one_trains_on_monte_carlo_returns(batch: Batch) -> None:
    """The returns are the sums of later rewards, independent of the values."""
    for values in (batch.values, torch.zeros_like(batch.values)):
        _, returns = gae(batch.token_rewards, values, batch.mask, lam=0.3, lam_critic=1.0)
        for row, mask in enumerate(batch.mask):
            rewards = batch.token_rewards[row, mask].tolist()
            to_come = [math.fsum(rewards[t:]) for t in range(len(rewards))]
            assert returns[row, mask].tolist() == pytest.approx(to_come, abs=1e-9)


@given(batches(), st.sampled_from([0.05, 0.5, 3.0]), st.sampled_from(["skip", "discount"]))
def test_lambda_grows_with_completion_length(batch: Batch, alpha: float, masked_tokens: Any) -> None:
    """λ = 1 − 1/(α n) for n trained tokens, never below 0; `lam` has no effect then."""
    knobs = {"gamma": 0.9, "by_length": alpha, "whitened": False, "masked_tokens": masked_tokens}
    advantages, _ = gae(batch.token_rewards, batch.values, batch.mask, lam=0.123, **knobs)
    for row, mask in enumerate(batch.mask):
        n = int(mask.sum())
        if n == 0:
            assert not advantages[row].any()
            continue
        seen = mask if masked_tokens == "skip" else torch.ones_like(mask)
        rewards, values = (x[row].where(mask, 0.0)[seen] for x in (batch.token_rewards, batch.values))
        expected = double_sum(rewards, values, 0.9, max(0.0, 1 - 1 / (alpha * n)))
        kept = [x for x, trained in zip(expected, mask[seen].tolist(), strict=True) if trained]
        assert advantages[row, mask].tolist() == pytest.approx(kept, abs=1e-9)


def test_lambda_of_a_hundred_tokens_at_the_papers_alpha() -> None:
    """λ = 1 − 1/(0.05 · 100) = 0.8: a reward of 1 at the end adds 0.8⁹⁹ at the first token, 1 at the last."""
    rewards, zeros = torch.zeros(1, 100, dtype=torch.float64), torch.zeros(1, 100, dtype=torch.float64)
    rewards[0, -1] = 1.0
    found, _ = gae(rewards, zeros, torch.ones(1, 100, dtype=torch.bool), by_length=0.05, whitened=False)
    assert found[0, [0, 98, 99]].tolist() == pytest.approx([0.8**99, 0.8, 1.0])


# ---- whitening


@given(batches(), st.booleans(), st.sampled_from(["skip", "discount"]))
def test_only_trained_tokens_are_in_the_mean_and_the_spread(batch: Batch, unbiased: bool, masked_tokens: Any) -> None:
    """Masked tokens, also inside a completion, are in neither, and stay 0."""
    knobs = {"masked_tokens": masked_tokens, "unbiased": unbiased}
    plain, _ = gae(batch.token_rewards, batch.values, batch.mask, whitened=False, **knobs)
    white, _ = gae(batch.token_rewards, batch.values, batch.mask, **knobs)
    assert not white[~batch.mask].any()
    live = plain[batch.mask].tolist()
    if len(set(live)) < 2:
        assert not white.any()
        return
    variance = statistics.variance(live) if unbiased else statistics.pvariance(live)
    expected = [(x - statistics.fmean(live)) / math.sqrt(variance + 1e-8) for x in live]
    assert white[batch.mask].tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


# ---- its targets and losses

numbers = st.floats(-3, 3).filter(lambda x: abs(x) > 1e-3)


@given(numbers, numbers, numbers, st.sampled_from([None, 0.2, 0.5]))
def test_the_value_loss_and_its_slope(value: float, old: float, target: float, epsilon: float | None) -> None:
    """½ (V − R)² has slope V − R; clipped, it is the larger of two, without slope where the clipped one is larger."""
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    given = [torch.tensor([[x]], dtype=torch.float64) for x in (old, target)]
    loss = value_loss(values, *given, epsilon=epsilon)
    (slope,) = torch.autograd.grad(loss.sum(), values)
    wrong, held = 0.5 * (value - target) ** 2, -1.0
    if epsilon is not None and abs(value - old) > epsilon:
        held = 0.5 * (old + math.copysign(epsilon, value - old) - target) ** 2
    assert loss.item() == pytest.approx(max(wrong, held))
    assert slope.item() == pytest.approx(0.0 if held > wrong else value - target)


# ---- KL in the reward


def test_kl_penalty_is_part_of_the_value_target() -> None:
    """r = (−β d₁, R − β d₂), V = (v₁, v₂), γ = 1: Â and R by hand, with λ = ½ for the policy and 1 for the critic."""
    old, ref = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -4.0]])  # d = (1, 2)
    values = torch.tensor([[0.25, 0.5]])
    symbols = equation(
        shapers=[part("rlm_shapers", kl_in_reward, beta=0.1)],
        advantage=part("rlm_advantages", gae, lam=0.5, lam_critic=1.0, whitened=False),
    )
    found = score(scoring([1.0], old_logp=old, ref_logp=ref, values=values), symbols)
    second = 1.0 - 0.2 - 0.5
    first = -0.1 + 0.5 - 0.25
    torch.testing.assert_close(found.advantages, torch.tensor([[first + 0.5 * second, second]]))
    torch.testing.assert_close(found.returns, torch.tensor([[-0.1 + 0.8, 0.8]]))


def test_adaptive_coefficient_changes_the_value_target() -> None:
    """KL is 3 per completion and the target 1: the factor is 1.02 from the second generation on."""
    old, ref = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -4.0]])
    paid = Part("rlm_shapers", "adaptive_kl_in_reward", "test", AdaptiveKLInReward).bind({"beta": 0.1, "target": 1.0})
    symbols = equation(shapers=[paid], advantage=part("rlm_advantages", gae, lam=1.0, whitened=False))
    batch = scoring([1.0], old_logp=old, ref_logp=ref, values=torch.zeros(1, 2))
    first = score(batch, symbols)
    paid.target.update(old, ref, batch.mask)
    second = score(batch, symbols)
    torch.testing.assert_close(first.returns, torch.tensor([[0.7, 0.8]]))
    torch.testing.assert_close(second.returns, torch.tensor([[1 - 0.102 * 3, 1 - 0.102 * 2]]))
