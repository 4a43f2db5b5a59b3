"""Aggregators against loops: the weight of every token of every completion, as value and as gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from fixtures_equations import part
from hypothesis import given
from rlm_testing import batches

from rlm_plugins.builtin import aggregators
from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RecipeError

WEIGHTS: dict[str, Callable[[Batch, int], float]] = {
    "token_mean": lambda batch, n: 1 / batch.num_tokens.item(),
    "sequence_mean": lambda batch, n: 1 / n / batch.num_sequences.item(),
    "sequence_sum": lambda batch, n: 1 / batch.num_sequences.item(),
    "fixed_length": lambda batch, n: 1 / batch.num_sequences.item() / batch.max_completion_length,
    "micro_batch_token_mean": lambda batch, n: 1 / batch.mask.sum().item() / batch.num_micro_batches.item(),
}
"""What a token of a row of n trained tokens weighs."""


def total(name: str, batch: Batch, **knobs: Any) -> torch.Tensor:
    found: torch.Tensor = part("rlm_aggregators", getattr(aggregators, name), **knobs)(batch)
    return found


@pytest.mark.parametrize("name", WEIGHTS)
@given(batch=batches())
def test_every_token_has_the_weight_of_the_formula(name: str, batch: Batch) -> None:
    loss = batch.loss.requires_grad_()
    actual = total(name, batch)
    expected = torch.zeros_like(loss)
    for row, mask in enumerate(batch.mask):
        for t in mask.nonzero():
            expected[row, t] = WEIGHTS[name](batch, int(mask.sum()))
    torch.testing.assert_close(actual, (loss.detach() * expected).sum())
    torch.testing.assert_close(torch.autograd.grad(actual, loss)[0], expected)


def own_counts(batch: Batch) -> Batch:
    """Return the batch with its own counts, as for a step of one micro-batch on one process."""
    tokens, rows = batch.mask.sum().double(), batch.mask.any(1).sum().double()
    return replace(
        batch, num_tokens=tokens.clamp(min=1), num_sequences=rows.clamp(min=1), num_micro_batches=torch.tensor(1.0)
    )


@given(batches())
def test_means_agree_for_equal_lengths(batch: Batch) -> None:
    batch = own_counts(replace(batch, mask=torch.ones_like(batch.mask)))
    width = batch.mask.shape[1]
    torch.testing.assert_close(total("token_mean", batch), total("sequence_mean", batch))
    torch.testing.assert_close(total("token_mean", batch) * width, total("sequence_sum", batch))


@given(batches())
def test_one_micro_batch_is_the_token_mean(batch: Batch) -> None:
    batch = own_counts(batch)
    torch.testing.assert_close(total("micro_batch_token_mean", batch), total("token_mean", batch))


@given(batches())
def test_a_fixed_length_is_a_sequence_sum_over_a_constant(batch: Batch) -> None:
    assert total("fixed_length", batch, length=7).item() == pytest.approx(total("sequence_sum", batch).item() / 7)


def test_trls_bnpo_depends_on_the_split_and_dapo_does_not() -> None:
    """Two completions of 1 and 3 tokens are in one micro-batch or in two."""
    loss = torch.tensor([[4.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    mask = torch.tensor([[True, False, False], [True, True, True]])
    batch = Batch(loss=loss, mask=mask, num_tokens=torch.tensor(4.0), num_micro_batches=torch.tensor(1.0))
    rows = [
        replace(batch, loss=loss[i : i + 1], mask=mask[i : i + 1], num_micro_batches=torch.tensor(2.0)) for i in (0, 1)
    ]
    assert sum(total("token_mean", row).item() for row in rows) == total("token_mean", batch).item() == 7 / 4
    assert total("micro_batch_token_mean", batch).item() == 7 / 4
    assert sum(total("micro_batch_token_mean", row).item() for row in rows) == (4 + 1) / 2


@pytest.mark.parametrize("length", [0, -5, 1.5])
def test_invalid_length_is_rejected(length: Any) -> None:
    with pytest.raises(RecipeError, match="length"):
        part("rlm_aggregators", aggregators.fixed_length, length=length)
