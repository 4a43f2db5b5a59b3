"""Log importance weights, their gradients, and the effect of sequence ratios on a loss."""

from __future__ import annotations

import torch
import trl_formulas
from hypothesis import given
from rlm_testing import batches

from rlm_plugins.builtin.importance import sequence, token
from rlm_plugins.equation.batch import Batch


@given(batches())
def test_a_sequences_ratio_is_the_geometric_mean_of_its_tokens(batch: Batch) -> None:
    actual = sequence(batch.logp, batch.old_logp, batch.mask)
    ratios = (batch.logp - batch.old_logp).exp()
    for row, mask in enumerate(batch.mask):
        expected = ratios[row, mask].prod() ** (1 / max(1, int(mask.sum())))
        torch.testing.assert_close(actual[row, 0].exp(), expected)


@given(batches())
def test_each_token_has_its_share_of_the_gradient(batch: Batch) -> None:
    logp = batch.logp.requires_grad_()
    (gradient,) = torch.autograd.grad(sequence(logp, batch.old_logp, batch.mask).sum(), logp)
    share = batch.mask / batch.mask.sum(1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(gradient, share.double())
    (gradient,) = torch.autograd.grad(token(logp, batch.old_logp).sum(), logp)
    assert (gradient == 1).all()


@given(batches(tokens=1))
def test_levels_are_equal_for_a_single_token(batch: Batch) -> None:
    plain = token(batch.logp, batch.old_logp).where(batch.mask, 0.0)
    torch.testing.assert_close(sequence(batch.logp, batch.old_logp, batch.mask), plain)


def test_both_are_trls_bit_by_bit() -> None:
    for seed in range(20):
        noise = torch.Generator().manual_seed(seed)
        logp, old = -torch.rand(8, 33, generator=noise), -torch.rand(8, 33, generator=noise)
        mask = torch.arange(33) < torch.randint(0, 34, (8, 1), generator=noise)
        assert torch.equal(token(logp, old), trl_formulas.log_weights(logp, old, mask.int(), "token"))
        assert torch.equal(sequence(logp, old, mask), trl_formulas.log_weights(logp, old, mask.int(), "sequence"))
