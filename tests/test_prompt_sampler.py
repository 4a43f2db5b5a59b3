"""The order of prompts: TRL's layout, and the same after a resume."""

from __future__ import annotations

import pytest
import torch
from trl.trainer.utils import RepeatSampler

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.rollout.prompt_sampler import PromptSampler

SHUFFLED = Registry().find("rlm_samplers", "shuffled").target


def ours(size: int, prompts: int, generations: int, repeats: int, seed: int) -> PromptSampler:
    return PromptSampler(
        lambda epoch: SHUFFLED(size, epoch, seed), size=size, prompts=prompts, generations=generations, repeats=repeats
    )


@pytest.mark.parametrize(("size", "prompts", "generations", "repeats"), [(8, 2, 4, 1), (7, 3, 2, 4), (5, 5, 1, 2)])
def test_layout_and_order_are_trls_in_every_epoch(size: int, prompts: int, generations: int, repeats: int) -> None:
    stock = RepeatSampler(range(size), generations, prompts, repeats, shuffle=True, seed=11)
    mine = ours(size, prompts, generations, repeats, seed=11)
    for epoch in range(3):
        mine.set_epoch(epoch)
        expected = list(stock)
        assert list(mine) == expected
        assert len(mine) == len(expected) == len(stock)


def test_an_epoch_depends_on_its_number_only() -> None:
    walked, fresh = ours(9, 3, 2, 1, seed=0), ours(9, 3, 2, 1, seed=0)
    for epoch in (0, 1):
        walked.set_epoch(epoch)
        list(walked)
    walked.set_epoch(2)
    fresh.set_epoch(2)
    assert list(walked) == list(fresh)


def test_sampler_may_return_a_subset() -> None:
    sampler = PromptSampler(lambda epoch: [4, 2], size=6, prompts=2, generations=2, repeats=2)
    assert list(sampler) == [4, 4, 2, 2] * 2
    assert torch.utils.data.DataLoader(list(range(6)), sampler=sampler, batch_size=4) is not None


def test_an_epoch_too_short_for_one_generation_is_refused() -> None:
    with pytest.raises(RecipeError, match="an epoch of 3 prompts is shorter than one generation batch, which takes 4"):
        list(ours(3, 4, 2, 1, seed=0))
