"""Log-weights, their gradients, and what a sequence's ratio does to a loss."""

from __future__ import annotations

import pytest
import stock
import torch
from by_hand import equation, part
from hypothesis import given, settings

from rlm_plugins.batch import Batch
from rlm_plugins.builtin import aggregators, importance, policy_losses
from rlm_plugins.builtin.importance import sequence, token
from rlm_plugins.step import objective
from rlm_plugins.testing import batches

quick = settings(max_examples=60, deadline=None, database=None, derandomize=True)


@quick
@given(batches())
def test_a_sequences_ratio_is_the_geometric_mean_of_its_tokens(batch: Batch) -> None:
    found = sequence(batch.logp, batch.old_logp, batch.mask)
    ratios = (batch.logp - batch.old_logp).exp()
    for row, mask in enumerate(batch.mask):
        expected = ratios[row, mask].prod() ** (1 / max(1, int(mask.sum())))
        torch.testing.assert_close(found[row, 0].exp(), expected)


@quick
@given(batches())
def test_each_token_has_its_share_of_the_gradient(batch: Batch) -> None:
    logp = batch.logp.requires_grad_()
    (gradient,) = torch.autograd.grad(sequence(logp, batch.old_logp, batch.mask).sum(), logp)
    share = batch.mask / batch.mask.sum(1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(gradient, share.double())
    (gradient,) = torch.autograd.grad(token(logp, batch.old_logp).sum(), logp)
    assert (gradient == 1).all()


@quick
@given(batches(tokens=1))
def test_of_a_single_token_both_are_the_same(batch: Batch) -> None:
    plain = token(batch.logp, batch.old_logp).where(batch.mask, 0.0)
    torch.testing.assert_close(sequence(batch.logp, batch.old_logp, batch.mask), plain)


def test_both_are_trls_bit_by_bit() -> None:
    for seed in range(20):
        noise = torch.Generator().manual_seed(seed)
        logp, old = -torch.rand(8, 33, generator=noise), -torch.rand(8, 33, generator=noise)
        mask = torch.arange(33) < torch.randint(0, 34, (8, 1), generator=noise)
        assert torch.equal(token(logp, old), stock.log_weights(logp, old, mask.int(), "token"))
        assert torch.equal(sequence(logp, old, mask), stock.log_weights(logp, old, mask.int(), "sequence"))


AGGREGATORS = ("token_mean", "sequence_mean", "sequence_sum", "fixed_length")


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("level", ["token", "sequence"])
@quick
@given(batch=batches())
def test_on_policy_gspo_and_grpo_have_the_gradient_of_reinforce(level: str, aggregator: str, batch: Batch) -> None:
    """A row's advantage given, GSPO's gradient is REINFORCE's under every sum that treats the row's tokens alike."""
    row_advantages = batch.advantages[:, :1]

    def gradient(**parts: object) -> torch.Tensor:
        logp = batch.old_logp.clone().requires_grad_()
        made = equation(aggregator=part("rlm_aggregators", getattr(aggregators, aggregator)), **parts)
        data = Batch(**{**vars(batch), "logp": logp, "advantages": row_advantages, "rollout_weight": None})
        return torch.autograd.grad(objective(data, made), logp)[0]

    ratio = part("rlm_importance", getattr(importance, level))
    clipped = gradient(importance=ratio, policy_loss=part("rlm_policy_losses", policy_losses.clip))
    torch.testing.assert_close(clipped, gradient(policy_loss=part("rlm_policy_losses", policy_losses.reinforce)))
