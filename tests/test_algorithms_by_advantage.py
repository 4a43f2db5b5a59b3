"""Algorithms that differ in Â, from rewards to gradient, against a few lines of Python each."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import chain, combinations

import pytest
import torch
from fixtures_equations import equation_of, loss_and_gradient_from_rewards

from rlm_plugins.equation.batch import Batch

REWARDS = [[1.0, 0.0, 0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
LENGTHS = [[5, 2, 4, 3, 1, 4], [3, 3, 5, 1, 2, 4], [2, 5, 1]]
Tensor = torch.Tensor
Rows = list[float]


def example() -> Batch:
    """Return three groups, one of them all correct, with completions of 1 to 5 tokens and an updated policy."""
    generator = torch.Generator().manual_seed(0)
    old, ref, moved, spread = (torch.randn(15, 5, generator=generator, dtype=torch.float64) for _ in range(4))
    old = -old.abs() - 0.1
    return Batch(
        group=torch.tensor([0] * 6 + [1] * 6 + [2] * 3),
        mask=torch.arange(5) < torch.tensor([*chain(*LENGTHS)]).unsqueeze(1),
        max_completion_length=5,
        rewards=torch.tensor([*chain(*REWARDS)], dtype=torch.float64),
        named_rewards={},
        logp=(old + 0.3 * moved).requires_grad_(),
        old_logp=old,
        ref_logp=old + 0.3 * ref,
        entropy=spread.abs(),
    )


# ---- Â of a batch, in plain Python


def grouped(say: Callable[[Rows, list[int]], Rows]) -> Rows:
    """Return `say(rewards, lengths)` of all groups, concatenated."""
    return [x for rewards, lengths in zip(REWARDS, LENGTHS, strict=True) for x in say(rewards, lengths)]


def centred(rewards: Rows, _: object = None) -> Rows:
    return [r - statistics.mean(rewards) for r in rewards]


def spread_out(rows: Rows) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).unsqueeze(1).expand(15, 5)


def lite_ppo(_: Batch) -> Tensor:
    return spread_out(grouped(centred)) / (statistics.stdev(chain(*REWARDS)) + 1e-4)


def gpg(_: Batch) -> Tensor:
    """Return the advantages of GPG: three of fifteen completions are in a group with zero advantage."""
    return spread_out(grouped(centred)) * 15 / 12


def pass_at_k(_: Batch) -> Tensor:
    def say(rewards: Rows, lengths: list[int]) -> Rows:
        teams = {team: max(rewards[i] for i in team) for team in combinations(range(len(rewards)), 4)}
        if len(set(teams.values())) < 2:
            return [0.0] * len(rewards)
        mean, spread = statistics.mean(teams.values()), statistics.pstdev(teams.values())
        return [
            statistics.mean((x - mean) / spread for team, x in teams.items() if i in team) for i in range(len(rewards))
        ]

    return spread_out(grouped(say))


def gfpo(_: Batch) -> Tensor:
    """Return the advantages of GFPO, NaN for a completion that was filtered out."""

    def say(rewards: Rows, lengths: list[int]) -> Rows:
        kept = sorted(range(len(rewards)), key=lambda i: lengths[i])[:4]
        among = [rewards[i] for i in kept]
        spread = statistics.stdev(among) + 1e-4
        return [(r - statistics.mean(among)) / spread if i in kept else torch.nan for i, r in enumerate(rewards)]

    return spread_out(grouped(say))


# ---- loss


def clipped(batch: Batch, advantages: Tensor) -> Tensor:
    """Return the token mean of PPO's clipped loss, over the completions that have an advantage."""
    compared = batch.mask & ~advantages.isnan()
    ratio, gain = (batch.logp - batch.old_logp).exp()[compared], advantages[compared]
    return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()


def per_token(batch: Batch, advantages: Tensor) -> Tensor:
    return -(advantages * batch.logp)[batch.mask].mean()


def with_k3_and_entropy(batch: Batch, advantages: Tensor) -> Tensor:
    compared = batch.mask & ~advantages.isnan()
    apart = batch.logp - batch.ref_logp
    paid = (-apart).exp() + apart - 1 - batch.entropy
    return clipped(batch, advantages) + 0.001 * paid[compared].mean()


EXPECTED = {
    "lite_ppo": (lite_ppo, clipped),
    "gpg": (gpg, per_token),
    "pass_at_k": (pass_at_k, clipped),
    "gfpo": (gfpo, with_k3_and_entropy),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_algorithm_equals_its_formula(name: str) -> None:
    """Value and gradient are compared."""
    batch = example()
    advantage, loss = EXPECTED[name]
    expected = loss(batch, advantage(batch))
    (wanted,) = torch.autograd.grad(expected, batch.logp)
    actual, gradient = loss_and_gradient_from_rewards(batch, equation_of(name))
    torch.testing.assert_close(actual, expected.detach())
    torch.testing.assert_close(gradient, wanted)
    assert gradient.any()
