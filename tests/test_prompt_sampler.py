"""The order of prompts: TRL's layout, and the same after a resume."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard, DataLoaderShard, SkipBatchSampler
from torch.utils.data import BatchSampler
from trl.trainer.utils import RepeatSampler

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.rollout.prompt_source import PromptSampler, order_of
from rlm_plugins.trainer.generation import Prompts

SHUFFLED = Registry().find("rlm_samplers", "shuffled").target


def ours(size: int, prompts: int, generations: int, repeats: int, seed: int) -> PromptSampler:
    return PromptSampler(
        lambda epoch: SHUFFLED(size, epoch, seed), size=size, prompts=prompts, generations=generations, repeats=repeats
    )


@pytest.mark.parametrize("seed", [0, 42])
@pytest.mark.parametrize(
    ("size", "prompts", "generations", "repeats"),
    [(8, 2, 4, 1), (7, 3, 2, 4), (5, 5, 1, 2), (1, 1, 1, 1), (100, 1, 1, 1)],
)
def test_layout_and_order_are_trls_in_every_epoch(
    size: int, prompts: int, generations: int, repeats: int, seed: int
) -> None:
    stock = RepeatSampler(range(size), generations, prompts, repeats, shuffle=True, seed=seed)
    mine = ours(size, prompts, generations, repeats, seed=seed)
    before = torch.get_rng_state()
    for epoch in range(3):
        mine.set_epoch(epoch)
        expected = list(stock)
        assert list(mine) == expected
        assert len(mine) == len(expected) == len(stock)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_epoch_reaches_a_run_resumed_on_several_processes() -> None:
    """Two samplers of batches then lie above that of the prompts, and the data loader reaches neither's epoch."""
    args = SimpleNamespace(seed=7, generation_batch_size=2, num_generations=1)
    context: Any = SimpleNamespace(args=args, micro_steps_per_generation=1)
    prompts = Prompts(context, order_of(None), source=None, dataset=range(8))
    shard = BatchSamplerShard(BatchSampler(prompts.sampler(), 1, drop_last=False), num_processes=2, process_index=1)
    resumed = DataLoaderShard(list(range(8)), batch_sampler=SkipBatchSampler(shard, skip_batches=1))
    resumed.set_epoch(2)
    prompts.begin_epoch(2)
    assert [batch.item() for batch in resumed] == SHUFFLED(8, 2, 7)[3::2] != SHUFFLED(8, 0, 7)[3::2]


def test_an_epoch_too_short_for_one_generation_is_refused() -> None:
    with pytest.raises(RecipeError, match="an epoch of 3 prompts is shorter than one generation batch, which takes 4"):
        list(ours(3, 4, 2, 1, seed=0))
