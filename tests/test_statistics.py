"""Shared tensor statistics against loops in plain Python."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlm_testing import batches

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.statistics import Groups, discounted, nanstd, next_live, whiten


@given(batches())
def test_group_table_contains_every_value_once(batch: Batch) -> None:
    groups = Groups(batch.logp[:, 0], batch.group)
    assert torch.equal(groups.flatten(groups.table), batch.logp[:, 0])
    for line, label in zip(groups.table, batch.group.unique(), strict=True):
        there = line[~line.isnan()]
        assert torch.equal(there, batch.logp[batch.group == label, 0])  # in the order of the completions


@given(batches())
def test_group_statistic_is_broadcast_to_its_completions(batch: Batch) -> None:
    groups = Groups(batch.rewards, batch.group)
    spread = groups.flatten(groups.has_spread())
    for row, label in enumerate(batch.group):
        assert spread[row] == (len(set(batch.rewards[batch.group == label].tolist())) > 1)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=9), st.integers(0, 3))
def test_nanstd_is_the_sample_standard_deviation(numbers: list[float], missing: int) -> None:
    x = torch.tensor([*numbers, *[torch.nan] * missing], dtype=torch.float64)
    assert nanstd(x, 0).item() == pytest.approx(statistics.stdev(numbers), abs=1e-12)


def test_nanstd_of_fewer_than_two_is_nan() -> None:
    assert nanstd(torch.tensor([1.0, torch.nan]), 0).isnan()


@given(batches())
def test_whitened_numbers_have_mean_zero_and_variance_one(batch: Batch) -> None:
    found = whiten(batch.values, batch.mask)
    live = found[batch.mask]
    assert not found[~batch.mask].any()
    if len(set(batch.values[batch.mask].tolist())) > 1:
        assert live.mean().item() == pytest.approx(0, abs=1e-9)
        assert live.var().item() == pytest.approx(1, rel=1e-3)  # eps reduces it slightly
    else:
        assert not live.any()


@given(batches(), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_discounted_and_following_skip_untrained_tokens(batch: Batch, factor: float) -> None:
    total, after = discounted(batch.values, factor, batch.mask), next_live(batch.values, batch.mask)
    for row, mask in enumerate(batch.mask):
        for t in range(len(mask)):
            ahead = [batch.values[row, s].item() for s in range(t, len(mask)) if mask[s]]
            expected = math.fsum(factor**i * x for i, x in enumerate(ahead))
            assert total[row, t].item() == pytest.approx(expected, abs=1e-9)
            assert after[row, t].item() == _first_after(batch, row, t)


def _first_after(batch: Batch, row: int, t: int) -> Any:
    later = [s for s in range(t + 1, batch.mask.shape[1]) if batch.mask[row, s]]
    return batch.values[row, later[0]].item() if later else 0.0
