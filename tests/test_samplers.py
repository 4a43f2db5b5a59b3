"""Samplers: TRL's own order in every epoch, as a pure function of epoch and seed."""

from __future__ import annotations

import pytest
import torch
from trl.trainer.utils import RepeatSampler

from rlm_plugins.builtin.rollouts import in_order, rlm_samplers, shuffled
from rlm_plugins.registry.part import Part


@pytest.mark.parametrize("seed", [0, 1, 42])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_shuffled_is_trls_order_in_every_epoch(size: int, seed: int) -> None:
    stock = RepeatSampler(range(size), mini_repeat_count=1, batch_size=1, seed=seed)
    for epoch in range(3):
        assert shuffled(size, epoch, seed) == list(stock)


def test_shuffled_does_not_change_the_global_generator() -> None:
    before = torch.get_rng_state()
    shuffled(20, 3, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_in_order() -> None:
    assert in_order(4) == [0, 1, 2, 3]
    assert in_order(0) == []


@pytest.mark.parametrize("name", sorted(rlm_samplers()))
def test_every_part_passes_conformance(name: str) -> None:
    Part("rlm_samplers", name, "builtin", rlm_samplers()[name]).check()
