"""Weights of tokens."""

from __future__ import annotations

import torch
from by_hand import equation, learning, part

from rlm_plugins.builtin.token_weights import complete_rows
from rlm_plugins.step import objective


def test_a_row_that_was_cut_off_counts_for_nothing() -> None:
    assert complete_rows(torch.tensor([True, False, True])).tolist() == [[0.0], [1.0], [0.0]]


def test_it_stays_in_the_denominator() -> None:
    """Overlong filtering takes the loss of a row away, not its tokens."""
    batch = learning()
    filtered = equation(token_weights=[part("rlm_token_weights", complete_rows)])
    whole, rest = objective(batch, equation()), objective(batch, filtered)
    assert whole.item() == (6 - 8) / 4
    assert rest.item() == 6 / 4
    assert torch.autograd.grad(rest, batch.logp)[0][1].tolist() == [0.0, 0.0, 0.0]
