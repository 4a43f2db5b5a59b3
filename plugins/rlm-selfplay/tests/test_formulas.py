"""Advantages per role and rewards of proposals against plain Python; the objective's value and gradient."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
import torch
from rlm_selfplay import ALGORITHMS, RoleBaseline, role_whitened
from rlm_selfplay.task_scoring import REWARDS, repetition
from rlm_testing import conformance

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective, score, with_own_step_batch
from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import slots_of
from rlm_plugins.specs import Algorithm

test_whitened = conformance("rlm_advantages", role_whitened, knobs={"role": "format"})
ROLES = [0.0, 1.0, 0.0, 1.0, 2.0, 0.0]
REWARDS_OF = [1.0, -1.0, 0.0, 1.0, 0.5, -0.5]


def batch() -> Batch:
    rng = torch.Generator().manual_seed(0)
    logp, old, ref = (-torch.rand(6, 3, generator=rng, dtype=torch.float64) for _ in range(3))
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()
    named = {"role": torch.tensor(ROLES), "episode_return": torch.tensor(REWARDS_OF)}
    group = torch.tensor([0, 0, 0, 1, 1, 1])
    return Batch(
        group=group,
        mask=mask,
        logp=logp,
        old_logp=old,
        ref_logp=ref,
        rewards=torch.tensor(REWARDS_OF, dtype=torch.float64),
        named_rewards=named,
        step=0,
        keep_mask=torch.ones(6, dtype=torch.bool),
        num_sequences_all=torch.tensor(6.0),
        num_tokens=mask.sum().double(),
        num_sequences=torch.tensor(6.0, dtype=torch.float64),
    )


def found_loss(algorithm: Algorithm, data: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return objective and gradient as the framework computes them, from the rewards on."""
    equation = Equation.from_slots(slots_of(replace(algorithm, rollouts=()), Registry()))
    scored = score(data, equation)
    leaf = data.logp.clone().requires_grad_()
    value = objective(with_own_step_batch(replace(scored, logp=leaf)), equation)
    return value, torch.autograd.grad(value, leaf)[0]


def test_spiral_is_reinforce_with_a_baseline_per_role() -> None:
    """Before the first update every baseline is 0: L = −mean over completions of r · mean log π."""
    data = batch()
    value, gradient = found_loss(ALGORITHMS["spiral"], data)
    expected = torch.zeros_like(data.logp)
    total = 0.0
    for i, length in enumerate(data.mask.sum(1).tolist()):
        total -= REWARDS_OF[i] * data.logp[i, :length].sum().item() / length / 6
        expected[i, :length] = -REWARDS_OF[i] / length / 6
    assert value.item() == pytest.approx(total)
    torch.testing.assert_close(gradient, expected)


def clipped_token_mean(data: Batch, logp: torch.Tensor, advantages: list[list[float]]) -> torch.Tensor:
    """Return −Σ min(w Â, clip(w, 0.8, 1.2) Â) / Σ n, token by token."""
    total = torch.zeros((), dtype=logp.dtype)
    for i, own in enumerate(advantages):
        for t, advantage in enumerate(own):
            w = (logp[i, t] - data.old_logp[i, t]).exp()
            total = total - torch.min(w * advantage, w.clamp(0.8, 1.2) * advantage)
    return total / data.mask.sum()


def assert_equal(algorithm: Algorithm, data: Batch, expected: torch.Tensor, logp: torch.Tensor) -> None:
    value, gradient = found_loss(algorithm, data)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, logp)[0])


KL = {"name": "kl", "beta": 1e-3}
SQLM = replace(ALGORITHMS["r_zero"], penalties=(KL,), aggregator="token_mean")
SERL = replace(
    ALGORITHMS["r_zero"],
    shapers=({"name": "kl_in_reward", "beta": 1e-3},),
    advantage="batch_whitened",
    aggregator="token_mean",
)
"""The objectives of the recipes sqlm and serl."""


def test_sqlm_is_grpo_with_a_kl_penalty() -> None:
    """Groups of both roles alike: (r − mean) / (std + 1e-4), and 0.001 · k3 per token."""
    data = batch()
    logp = data.logp.clone().requires_grad_()
    lengths = data.mask.sum(1).tolist()
    advantages = []
    for i, length in enumerate(lengths):
        own = REWARDS_OF[:3] if i < 3 else REWARDS_OF[3:]
        advantages.append([(REWARDS_OF[i] - statistics.mean(own)) / (statistics.stdev(own) + 1e-4)] * length)
    expected = clipped_token_mean(data, logp, advantages)
    for i, length in enumerate(lengths):
        d = data.ref_logp[i, :length] - logp[i, :length]
        expected = expected + 1e-3 * (d.exp() - d - 1).sum() / data.mask.sum()
    assert_equal(SQLM, data, expected, logp)


def test_serl_is_reinforce_pp_with_the_kl_in_the_reward() -> None:
    """Returns of r at the last token less 0.001 · log π_old / π_ref at each, whitened over the tokens of the batch."""
    data = batch()
    logp = data.logp.clone().requires_grad_()
    returns: list[list[float]] = []
    for i, length in enumerate(data.mask.sum(1).tolist()):
        kl = (data.old_logp - data.ref_logp)[i, :length].tolist()
        returns.append([REWARDS_OF[i] - 1e-3 * sum(kl[t:]) for t in range(length)])
    every = [value for own in returns for value in own]
    mean, scale = statistics.mean(every), math.sqrt(statistics.variance(every) + 1e-8)
    advantages = [[(value - mean) / scale for value in own] for own in returns]
    assert_equal(SERL, data, clipped_token_mean(data, logp, advantages), logp)


def test_baseline_is_the_running_mean_of_each_role() -> None:
    baseline = RoleBaseline(decay=0.9)
    data = batch()
    data.mask[2] = False  # the other player ended the game before the first move
    means = {0.0: 0.0, 1.0: 0.0, 2.0: 0.0}
    for _ in range(3):
        before = baseline(data.rewards, data.named_rewards)
        assert before.tolist() == pytest.approx([r - means[role] for r, role in zip(REWARDS_OF, ROLES, strict=True)])
        baseline.update(data.rewards, data.named_rewards, data.mask)
        for i in (0, 1, 3, 4, 5):
            means[ROLES[i]] = 0.9 * means[ROLES[i]] + 0.1 * REWARDS_OF[i]
    restored = RoleBaseline(decay=0.9)
    restored.load_state_dict(baseline.state_dict())
    assert torch.equal(restored(data.rewards, data.named_rewards), baseline(data.rewards, data.named_rewards))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("learnability", [0.0, 0.75, 0.5, 0.25, 0.0]),
        ("uncertainty", [0.0, 0.5, 1.0, 0.5, 0.0]),
        ("disagreement", [0.0, 1.0, 1.0, 1.0, 0.0]),
    ],
)
def test_reward_of_a_proposal_by_its_solve_rate(name: str, values: list[float]) -> None:
    """The expected values are those of the papers at 0, ¼, ½, ¾ and 1."""
    assert [REWARDS[name](rate / 4) for rate in range(5)] == values


def test_repetition_is_the_share_of_the_cluster() -> None:
    """a~b and b~c put all three into one cluster, although a and c have nothing in common."""
    a, b, c = "abcdefgh", "abcdefghijklmnop", "ijklmnop"
    assert repetition([a, b, c, "zzz"], 0.25) == [0.75, 0.75, 0.75, 0.25]
    assert repetition([a, c], 0.25) == [0.5, 0.5]
    assert repetition([], 0.5) == []
