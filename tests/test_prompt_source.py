"""The prompt source: prompts of the data loader or of a sampler, in TRL's order, and equal ones after a resume."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard, DataLoaderShard, SkipBatchSampler
from torch.utils.data import BatchSampler
from trl.trainer.utils import RepeatSampler

from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.rollout.prompt_source import (
    InOrder,
    OnDemand,
    PromptSampler,
    PromptSource,
    order_of,
    prompt_source_for,
    reason,
)
from rlm_plugins.trainer.generation import Prompts

REGISTRY = Registry()
SHUFFLED = REGISTRY.find("rlm_samplers", "shuffled").target


def sampler(target: Any) -> Bound:
    return Part("rlm_samplers", "it", "guest", target).bind({})


def chosen(indices: list[int]) -> Any:
    def ask(count: int) -> list[int]:
        return indices

    return ask


def by_draw(size: int, count: int, draw: int, seed: int) -> list[int]:
    return [(seed + draw * 5 + i) % size for i in range(count)]


def epochs() -> InOrder:
    return InOrder(lambda epoch: SHUFFLED(10, epoch, 7))


@pytest.mark.parametrize("count", [1, 3, 4, 10])
def test_in_order_equals_the_data_loader(count: int) -> None:
    loader = PromptSampler(lambda epoch: SHUFFLED(10, epoch, 7), size=10, prompts=count, generations=1, repeats=1)
    desk = epochs()
    for epoch in range(3):
        loader.set_epoch(epoch)
        blocks: Iterator[int] = iter(loader)
        for _ in range(10 // count):
            assert desk.take(count) == [next(blocks) for _ in range(count)]


@pytest.mark.parametrize("make", [epochs, lambda: OnDemand(sampler(by_draw), 10, 7)], ids=["in order", "on demand"])
@pytest.mark.parametrize("done", range(8))
def test_prompt_source_resumes(make: Any, done: int) -> None:
    whole: PromptSource = make()
    taken = [whole.take(3) for _ in range(10)]
    again, first = make(), make()
    assert [first.take(3) for _ in range(done)] == taken[:done]
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [again.take(3) for _ in range(10 - done)] == taken[done:]


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ([0, 1], "returned 2 different indices.*3 different indices"),
        ([0, 1, 1], "returned 2 different indices"),
        ([0, 1, 5], "returned index 5 for 5 examples.*whole numbers from 0 to 4"),
        ([0, 1, 0.5], "returned index 0.5 for 5"),
        ([0, 1, "a"], "returned index 'a' for 5"),
    ],
)
def test_invalid_selection_is_rejected(indices: list[Any], words: str) -> None:
    with pytest.raises(RecipeError, match=f"(?s){words}"):
        OnDemand(sampler(chosen(indices)), 5, 0).take(3)


def test_failing_sampler_is_named() -> None:
    def broken(count: int) -> list[int]:
        raise ValueError("no")

    with pytest.raises(PartError, match="guest/it"):
        OnDemand(sampler(broken), 5, 0).take(3)


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ([], "returned 0 indices"),
        ([0, 3], "returned index 3"),
        ([0, 1, 2, 0], "returned 4 indices"),
        ([2, 1, 1], "'it' returned index 1 more than once in epoch 0"),
    ],
)
def test_invalid_order_is_rejected(indices: list[int], words: str) -> None:
    def order(size: int) -> list[int]:
        return indices

    with pytest.raises(RecipeError, match=words):
        order_of(sampler(order))(3, 0, 0)


def test_epoch_may_leave_examples_out() -> None:
    def order(size: int, epoch: int) -> list[int]:
        return list(range(size))[: epoch + 1]

    assert [order_of(sampler(order))(3, epoch, 0) for epoch in range(3)] == [[0], [0, 1], [0, 1, 2]]


def test_the_order_of_a_recipe_without_sampler_is_trls() -> None:
    assert list(order_of(None)(9, 2, 5)) == SHUFFLED(9, 2, 5)
    assert list(order_of(None, shuffle=False)(4, 2, 5)) == [0, 1, 2, 3]


def sieve(**beside: Any) -> Bound:
    part = REGISTRY.find("rlm_filters", "nonzero_std")
    return Bound(part, part.bind({}).knobs, part.target, options=beside)


def by_problem(rewards: Any, prompt_index: Any) -> Any:
    return rewards - prompt_index


class Learning:
    """Part that names `prompt_index` only in `update`."""

    def __call__(self, rewards: Any) -> Any:
        return rewards

    def update(self, prompt_index: Any) -> None: ...


def test_reason_for_a_prompt_source() -> None:
    assert reason([sampler(SHUFFLED), sieve()]) == ""
    assert reason([sieve(refill=3)]) == "the filter 'nonzero_std' refills the batch"
    assert reason([sampler(by_draw)]) == "the sampler 'it' is called before every generation"
    for target in (by_problem, Learning):
        assert reason([Part("rlm_advantages", "mine", "guest", target).bind({})]) == "'mine' requires `prompt_index`"


def test_prompt_source_by_sampler() -> None:
    orders = order_of(None)
    assert prompt_source_for(None, [sieve()], orders, size=9, seed=0) is None
    found = prompt_source_for(None, [sieve(refill=2)], orders, size=9, seed=4)
    assert isinstance(found, InOrder)
    assert found.take(9) == SHUFFLED(9, 0, 4)
    assert isinstance(prompt_source_for(sampler(by_draw), [], orders, size=9, seed=4), OnDemand)


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
