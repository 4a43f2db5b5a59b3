"""Knobs of conventions, each against the formula of its library: value, and gradient where there is one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fixtures_equations import loss_batch
from rlm_algorithms import group_advantages
from rlm_algorithms.group_advantages import best_margin

from rlm_plugins.builtin import advantages as a
from rlm_plugins.builtin import aggregators as z
from rlm_plugins.builtin import importance as w
from rlm_plugins.builtin import penalties as k
from rlm_plugins.errors import PartError

REWARDS, GROUP = torch.tensor([2.0, 1.0, 0.0, 0.0]), torch.tensor([7, 1, 1, 1])
"""A group of one, and one of three."""
MASK = torch.tensor([[True, True], [True, False], [True, True], [True, True]])


@pytest.mark.parametrize(
    ("part", "given", "lone"),
    [
        (a.group_relative, {}, 2.0),
        (a.group_relative, {"scale": "none"}, 2.0),
        (a.leave_one_out, {}, 2.0),
        (group_advantages.optimal_baseline, {"mask": MASK}, 2.0),
        (group_advantages.gpg, {}, 2.0),
        (group_advantages.gpg, {"counted": "nonzero_rewards"}, 4.0),  # 2 of 4 completions have a reward
    ],
)
def test_singleton_group_keeps_its_reward_and_others_are_unchanged(part: Any, given: Any, lone: float) -> None:
    spread_only = 4 / 3 if part is group_advantages.gpg and "counted" not in given else 1.0
    kept, zero = part(REWARDS, group=GROUP, singleton="reward", **given), part(REWARDS, group=GROUP, **given)
    assert kept[0].item() == pytest.approx(lone * spread_only)
    assert zero[0].item() == 0.0
    torch.testing.assert_close(kept[1:], zero[1:])


def test_equal_rewards_have_no_advantage_in_any_convention() -> None:
    same = torch.full((4,), 0.3)
    for part in (a.group_relative, a.leave_one_out, group_advantages.gpg):
        assert part(same, torch.tensor([0, 0, 1, 1]), singleton="reward").tolist() == [0.0] * 4  # type: ignore[operator]
    assert best_margin(same, torch.tensor([0, 0, 1, 1])).tolist() == [0.0] * 4


def test_singleton_reward_is_whitened_with_the_batch() -> None:
    """Its baseline is 0, so 2 remains; the others have their mean, 1/3, subtracted; there are seven tokens."""
    centred = torch.tensor([2.0, 2 / 3, -1 / 3, -1 / 3])
    to_come = centred.unsqueeze(1).expand(4, 2)
    live = to_come[MASK]
    spread = torch.zeros(4, 2).where(~torch.tensor([[False, True], [True, False], [False, True], [False, True]]), 1.0)
    found = group_advantages.batch_whitened(
        REWARDS, spread * REWARDS.unsqueeze(1), GROUP, MASK, center_by_group=True, singleton="reward"
    )
    torch.testing.assert_close(found[MASK], (live - live.mean()) / live.std())


@pytest.mark.parametrize(("masked_tokens", "first"), [("skip", 0.5 * 8), ("discount", 0.25 * 8), ("reset", 0.0)])
def test_reward_to_go_at_a_masked_token(masked_tokens: Any, first: float) -> None:
    """γ = ½, reward 8 at the last of three tokens, the second a tool's; a completion of one token has no reward."""
    mask = torch.tensor([[True, False, True], [True, False, False]])
    dense = torch.tensor([[0.0, 0.0, 8.0], [0.0, 0.0, 0.0]])
    found = group_advantages.batch_whitened(
        dense.sum(1), dense, torch.tensor([0, 1]), mask, gamma=0.5, masked_tokens=masked_tokens, eps=0.0
    )
    live = torch.tensor([first, 8.0, 0.0])
    torch.testing.assert_close(found[mask], (live - live.mean()) / live.std())


def test_leave_one_out_over_the_batch() -> None:
    plain = a.leave_one_out(REWARDS, GROUP)
    expected = (plain - plain.mean()) / (plain.std() + 1e-4)
    torch.testing.assert_close(a.leave_one_out(REWARDS, GROUP, scale="batch"), expected)
    assert a.leave_one_out(torch.ones(3), torch.tensor([0, 0, 0]), scale="batch").tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([1.0, 0.0, 0.5], [0.5, 0.0, 0.0]), ([1.0, 1.0, 0.0], [0.0] * 3), ([-3.0, -1.0, -2.0], [0.0, 1.0, 0.0])],
)
def test_best_margin_of_a_group(rewards: list[float], expected: list[float]) -> None:
    group, given = torch.zeros(3, dtype=torch.long), torch.tensor(rewards)
    assert best_margin(given, group, scale="none").tolist() == expected
    torch.testing.assert_close(best_margin(given, group), torch.tensor(expected) / (given.std() + 1e-6))


def test_best_margin_of_a_singleton_is_zero() -> None:
    assert best_margin(torch.tensor([5.0]), torch.tensor([0])).tolist() == [0.0]


def test_the_ratio_of_a_completion_is_a_product() -> None:
    batch = loss_batch()
    logp = (batch.old_logp + torch.tensor([[0.25, -0.5, 1.0], [0.5, 9.0, 9.0]])).requires_grad_()
    found = w.sequence_sum(logp, batch.old_logp, batch.mask).exp()
    ratios = torch.exp(logp - batch.old_logp).where(batch.mask, 1.0)
    torch.testing.assert_close(found.squeeze(1), ratios.prod(1))
    ours, theirs = (torch.autograd.grad(x.sum(), logp, retain_graph=True)[0] for x in (found, ratios.prod(1)))
    torch.testing.assert_close(ours, theirs)


def test_bounded_kl_has_no_gradient_beyond_its_bound() -> None:
    logp = torch.tensor([[-1.0, -6.0]], requires_grad=True)
    ref = torch.tensor([[-1.5, -1.0]])  # d = ½ and −5: k3 = 0.107 and 142
    found = k.kl(logp, ref, bound=10.0)
    (gradient,) = torch.autograd.grad(found.sum(), logp)
    d = torch.tensor(0.5)
    torch.testing.assert_close(found[0], torch.stack([(-d).exp() + d - 1, torch.tensor(10.0)]))
    torch.testing.assert_close(gradient[0], torch.stack([1 - (-d).exp(), torch.tensor(0.0)]))


LOSS = torch.tensor([[1.0, 3.0], [2.0, 9.0], [9.0, 9.0]])
LIVE = torch.tensor([[True, True], [True, False], [False, False]])


@pytest.mark.parametrize(
    ("aggregator", "given", "left_out"),
    [(z.sequence_mean, {}, 4.0), (z.sequence_sum, {}, 6.0), (z.fixed_length, {"max_completion_length": 4}, 1.5)],
)
def test_completions_without_tokens_are_counted(aggregator: Any, given: Any, left_out: float) -> None:
    """Two of three completions have tokens: the sum is divided by 2 or by 3."""
    loss = LOSS.clone().requires_grad_()
    counts = {"num_sequences": torch.tensor(2.0), "num_sequences_all": torch.tensor(3.0)}
    found = {
        kind: aggregator(loss, LIVE, **counts, **given, empty_completions=kind) for kind in ("excluded", "included")
    }
    assert [x.item() for x in found.values()] == pytest.approx([left_out / 2, left_out / 3])
    out, counted = (torch.autograd.grad(x, loss, retain_graph=True)[0] for x in found.values())
    torch.testing.assert_close(counted, out * 2 / 3)
    with pytest.raises(PartError, match="requires `num_sequences_all`"):
        aggregator(loss, LIVE, num_sequences=torch.tensor(2.0), **given, empty_completions="included")


def test_the_sum_of_a_batch_over_a_length() -> None:
    loss = LOSS.clone().requires_grad_()
    found = z.fixed_length(loss, LIVE, torch.tensor(2.0), 4, over="batch")
    assert found.item() == 6 / 4
    torch.testing.assert_close(torch.autograd.grad(found, loss)[0], LIVE / 4)
