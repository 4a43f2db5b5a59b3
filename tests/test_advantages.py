"""Advantages where no record of a library reaches: at the edges, by enumeration, and GDPO against plain Python."""

from __future__ import annotations

import math
import statistics
from itertools import combinations
from typing import Any

import pytest
import torch
from fixtures_equations import equation, part, scoring
from hypothesis import given
from hypothesis import strategies as st
from rlm_algorithms.adaptive_kl import AdaptiveKLInReward
from rlm_algorithms.group_advantages import batch_whitened, best_margin, gpg, optimal_baseline, pass_at_k
from rlm_testing import batches

from rlm_plugins.builtin.advantages import Scale, gae, group_relative, leave_one_out, per_reward
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.statistics import whiten
from rlm_plugins.equation.step import score
from rlm_plugins.errors import PartError
from rlm_plugins.registry.part import Part

SCALES: tuple[Scale, ...] = ("group", "batch", "centered_batch", "none")
Tensor = torch.Tensor

# ---- groups without spread, and groups of one


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
        "gpg": gpg(rewards, group, singleton="reward"),
        "best_margin": best_margin(rewards, group, eps=0.0),
    }
    for name, advantages in found.items():
        assert not advantages[:7].any(), name
        assert advantages[7:].any(), name
        assert advantages.isfinite().all(), name


REWARDS, GROUP = torch.tensor([2.0, 1.0, 0.0, 0.0]), torch.tensor([7, 1, 1, 1])
"""A group of one, and one of three."""
MASK = torch.tensor([[True, True], [True, False], [True, True], [True, True]])


@pytest.mark.parametrize(
    ("estimator", "given", "lone"),
    [
        *((group_relative, {"scale": scale}, None) for scale in SCALES),
        (best_margin, {}, None),
        (group_relative, {}, 2.0),
        (leave_one_out, {}, 2.0),
        (optimal_baseline, {"mask": MASK}, 2.0),
        (gpg, {}, 2.0 * 4 / 3),
        (gpg, {"counted": "nonzero_rewards"}, 4.0),  # 2 of 4 completions have a reward
    ],
)
def test_a_group_of_one_is_zero_or_keeps_its_reward(estimator: Any, given: Any, lone: float | None) -> None:
    plain = estimator(REWARDS, group=GROUP, **given)
    assert plain[0].item() == 0.0
    assert plain[1:].any()
    if lone is not None:
        kept = estimator(REWARDS, group=GROUP, singleton="reward", **given)
        assert kept[0].item() == pytest.approx(lone)
        torch.testing.assert_close(kept[1:], plain[1:])


def test_singleton_reward_is_whitened_with_the_batch() -> None:
    """Its baseline is 0, so 2 remains; the others have their mean, 1/3, subtracted; there are seven tokens."""
    live = torch.tensor([2.0, 2 / 3, -1 / 3, -1 / 3]).unsqueeze(1).expand(4, 2)[MASK]
    ends = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]) * REWARDS.unsqueeze(1)
    found = batch_whitened(REWARDS, ends, GROUP, MASK, center_by_group=True, singleton="reward")
    torch.testing.assert_close(found[MASK], (live - live.mean()) / live.std())


# ---- pass@k


def alone(rewards: list[float]) -> tuple[Tensor, Tensor]:
    """Return rewards and labels of a single group."""
    return torch.tensor(rewards, dtype=torch.float64), torch.zeros(len(rewards), dtype=torch.long)


def by_enumeration(rewards: list[float], k: int) -> list[float]:
    """Score each team of k by its best reward, and average the standard scores of a completion's teams."""
    rows = range(len(rewards))
    worth = {team: max(rewards[i] for i in team) for team in combinations(rows, k)}
    if len({*worth.values()}) < 2:
        return [0.0] * len(rewards)
    mean, spread = statistics.mean(worth.values()), statistics.pstdev(worth.values())
    return [statistics.mean((x - mean) / spread for team, x in worth.items() if i in team) for i in rows]


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=7), st.integers(1, 8))
def test_pass_at_k_is_the_mean_over_subsets(rewards: list[float], k: int) -> None:
    assert pass_at_k(*alone(rewards), k=k).tolist() == pytest.approx(by_enumeration(rewards, k))


@pytest.mark.parametrize("other", [0.1, -1.0, 1.1])
def test_non_binary_rewards_are_rejected(other: float) -> None:
    with pytest.raises(PartError, match=rf"got the reward {other:g}\n  allowed: 0 or 1\n  hint: threshold: 1.0"):
        pass_at_k(*alone([0.0, other, 1.0]))
    expected = pass_at_k(*alone([0.0, float(other >= 1), 1.0]), k=2)
    assert torch.equal(pass_at_k(*alone([0.0, other, 1.0]), k=2, threshold=1.0), expected)


def test_large_groups_do_not_overflow() -> None:
    rewards, group = alone([1.0] * 3 + [0.0] * 509)
    found = pass_at_k(rewards, group, k=64)
    missed = math.comb(509, 64) / math.comb(512, 64)
    assert float(found[0]) == pytest.approx(math.sqrt(missed / (1 - missed)))


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
    """Masked tokens are skipped, as if they were removed; the returns may have another λ."""
    knobs = {"gamma": gamma, "lam": lam, "whitened": False}
    advantages, returns = gae(batch.returns, batch.values, batch.mask, **knobs)
    same, others = gae(batch.returns, batch.values, batch.mask, lam_critic=0.8, **knobs)
    for row, mask in enumerate(batch.mask):
        rewards, values = batch.returns[row, mask], batch.values[row, mask]
        expected = double_sum(rewards, values, gamma, lam)
        assert advantages[row, mask].tolist() == pytest.approx(expected, abs=1e-9)
        targets = [a + v for a, v in zip(double_sum(rewards, values, gamma, 0.8), values.tolist(), strict=True)]
        assert others[row, mask].tolist() == pytest.approx(targets, abs=1e-9)
    torch.testing.assert_close(returns, (advantages + batch.values).where(batch.mask, 0.0))
    assert torch.equal(same, advantages)
    assert not advantages[~batch.mask].any()
    assert not others[~batch.mask].any()


@given(batches(), st.sampled_from([0.05, 0.5, 3.0]), st.sampled_from(["skip", "discount"]))
def test_lambda_grows_with_completion_length(batch: Batch, alpha: float, masked_tokens: Any) -> None:
    """λ = 1 − 1/(α n) for n trained tokens, never below 0; masked tokens that discount have reward and value 0."""
    knobs = {"gamma": 0.9, "by_length": alpha, "whitened": False, "masked_tokens": masked_tokens}
    advantages, _ = gae(batch.token_rewards, batch.values, batch.mask, lam=0.123, **knobs)
    for row, mask in enumerate(batch.mask):
        n = max(1, int(mask.sum()))
        seen = mask if masked_tokens == "skip" else torch.ones_like(mask)
        rewards, values = (x[row].where(mask, 0.0)[seen] for x in (batch.token_rewards, batch.values))
        expected = double_sum(rewards, values, 0.9, max(0.0, 1 - 1 / (alpha * n)))
        kept = [x for x, trained in zip(expected, mask[seen].tolist(), strict=True) if trained]
        assert advantages[row, mask].tolist() == pytest.approx(kept, abs=1e-9)


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
