"""Aggregators against loops: the weight of every token of every completion, as value and as gradient."""

from __future__ import annotations

from collections.abc import Callable
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


@pytest.mark.parametrize("length", [0, -5, 1.5])
def test_invalid_length_is_rejected(length: Any) -> None:
    with pytest.raises(RecipeError, match="length"):
        part("rlm_aggregators", aggregators.fixed_length, length=length)
