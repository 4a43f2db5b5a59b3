"""Prompts that are kept once: the same logits and samples, whoever is let go, and before and after they are copied."""

from __future__ import annotations

import random
from typing import Any

import fixtures_models
import pytest
import torch
from test_fast_generate import config, prompts, same
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import DynamicCache

from rlm_plugins.generation import prefix_attention as shared
from rlm_plugins.generation.active_sequences import distinct_prompts
from rlm_plugins.generation.kv_cache import preallocate, surviving_indices
from rlm_plugins.generation.kv_state import KVState
from rlm_plugins.generation.llama_step import LlamaStep
from rlm_plugins.generation.prefix_attention import SharedPrompts, sharing_pays

FAMILIES: dict[str, dict[str, Any]] = {"Llama": {"num_key_value_heads": 4}, "Qwen2": {}, "Qwen3": {}}
"""Each head with keys of its own; shared keys and biases; heads that are normalised."""
NEVER = 10**9


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of each look at prompts that are kept once: how many prompts, and how many rows."""
    found: list[tuple[int, int]] = []
    seen = SharedPrompts.attend

    def watched(self: SharedPrompts, number: int, asked: torch.Tensor, *rest: Any) -> torch.Tensor:
        found.append((len(self.kv[number][0]), len(asked)))
        return seen(self, number, asked, *rest)

    monkeypatch.setattr(SharedPrompts, "attend", watched)
    return found


# ------------------------------------------------------------------ the same logits


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("groups", [(1, 5, 3), (6,), (1, 1, 1)], ids=["several", "one prompt", "one row each"])
@pytest.mark.parametrize("lengths", [(6, 3, 5), (4, 4, 4)], ids=["ragged", "equal"])
@pytest.mark.parametrize("least", [0, 100, NEVER], ids=["once", "goes over", "copied"])
@torch.no_grad()
def test_logits_are_those_of_the_whole_sequence(
    family: str,
    groups: tuple[int, ...],
    lengths: tuple[int, ...],
    least: int,
    monkeypatch: pytest.MonkeyPatch,
    kept: list[tuple[int, int]],
) -> None:
    """Token by token, rows in a mixed order, let go in any, until one is left."""
    monkeypatch.setattr(shared, "MIN_SAVED", least)
    model = fixtures_models.adapted(fixtures_models.model(family, **FAMILIES[family])).eval()
    draw, tokens = random.Random(sum(groups)), 12
    first = prompts(*lengths[: len(groups)])
    twin = torch.tensor(draw.sample([i for i, many in enumerate(groups) for _ in range(many)], sum(groups)))
    words = torch.randint(10, fixtures_models.WORDS, (len(twin), tokens), generator=torch.Generator().manual_seed(2))
    ids, there = (first[x][twin] for x in ("input_ids", "attention_mask"))
    there = torch.cat([there, torch.ones_like(words)], 1)
    places, width = (there.cumsum(1) - 1).clamp(min=0), ids.shape[1]
    usual = model(torch.cat([ids, words], 1), attention_mask=there, position_ids=places).logits[:, width:]

    cache = DynamicCache(config=model.config)
    preallocate(cache)
    some, order = distinct_prompts(ids, None)
    start = {"attention_mask": there[some, :width], "position_ids": places[some, :width]}
    model(ids[some], past_key_values=cache, use_cache=True, **start)
    given = {"attention_mask": there[:, : width + 1], "position_ids": places[:, : width + 1]}
    past, step = KVState({**given, "past_key_values": cache}, order), LlamaStep(model)
    left, alive = torch.arange(len(twin)), []
    for t in range(tokens):
        alive.append((len({*twin[left].tolist()}), len(left)))
        assert torch.allclose(step(words[left, t], past), usual[left, t], atol=1e-5)
        done = torch.tensor([draw.random() < 0.3 for _ in left])
        done[draw.randrange(len(left))] = False
        past.evict(places := surviving_indices(done))
        left = left[places]
    once = kept[:: model.config.num_hidden_layers]
    assert once == alive[: len(once)], "prompts without rows are gone"
    assert len(once) == tokens if least == 0 else len(once) < tokens
    assert bool(once) == (least == 0 or (least == 100 and len(groups) < len(twin)))


@pytest.mark.parametrize("sizes", [(7,), (1, 2, 4), (2, 2, 2), (1, 1)])
def test_both_parts_are_one_softmax(sizes: tuple[int, ...]) -> None:
    """As in double precision, also where a prompt is all padding."""
    draw = torch.Generator().manual_seed(0)
    twin = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    twin = twin[torch.randperm(len(twin), generator=draw)]
    keys, values = (torch.randn(len(sizes), 2, 9, 8, generator=draw) for _ in range(2))
    own, own_values = (torch.randn(len(twin), 2, 5, 8, generator=draw) for _ in range(2))
    asked = torch.randn(len(twin), 2, 3, 8, generator=draw)
    mask = torch.zeros(len(sizes), 1, 1, 9)
    mask[0, ..., :4] = mask[-1] = torch.finfo(torch.float32).min
    mask = pad(mask[twin], (0, 5))
    k, v = (torch.cat(x, 2).double() for x in ((keys[twin], own), (values[twin], own_values)))
    usual = scaled_dot_product_attention(asked.double(), k, v, attn_mask=mask.double(), scale=0.3)
    found = SharedPrompts([(keys, values)], twin, mask).attend(0, asked, own, own_values, 0.3)
    torch.testing.assert_close(found, usual.float(), rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------ the same samples, and less memory


@pytest.mark.parametrize("least", [0, 50])
@pytest.mark.parametrize("lengths", [(1,), (4, 4), (9, 1), (3, 1, 5)])
def test_the_samples_are_those_of_transformers(
    least: int, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, kept: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(shared, "MIN_SAVED", least)
    model = fixtures_models.adapted(fixtures_models.model("Qwen3")).eval()
    for times in (1, 3, 8):
        same(model, prompts(*lengths, times=times), config())
    assert kept


def test_an_empty_prompt_is_no_matter(monkeypatch: pytest.MonkeyPatch, kept: list[tuple[int, int]]) -> None:
    monkeypatch.setattr(shared, "MIN_SAVED", 0)
    inputs = prompts(3, 2, times=3)
    inputs["input_ids"][3:], inputs["attention_mask"][3:] = 0, 0
    same(fixtures_models.model("Llama").eval(), inputs, config())
    assert kept


def test_a_prompt_has_one_place_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fixtures_models.model("Llama").eval()
    for least, times in ((0, 1), (NEVER, 4)):
        monkeypatch.setattr(shared, "MIN_SAVED", least)
        cache = DynamicCache(config=model.config)
        preallocate(cache)
        model(torch.arange(1, 6)[None], past_key_values=cache, use_cache=True)
        past = KVState(
            {"position_ids": torch.full((4, 1), 5), "past_key_values": cache}, torch.zeros(4, dtype=torch.long)
        )
        held = past._prompts.kv[0][0] if past._prompts else cache.layers[0].keys
        assert len(held) == times
        assert cache.get_seq_length() == (5 if times > 1 else 0), "its own tokens alone"


def test_small_groups_copy_the_prompt_cache() -> None:
    keys = torch.empty(2, 2, 112, 64)
    assert sharing_pays(torch.arange(2).repeat(8), keys)
    assert not sharing_pays(torch.arange(2).repeat(2), keys)
    assert not sharing_pays(torch.arange(2), keys.expand(2, 2, 112, 64))
    assert not sharing_pays(torch.arange(2).repeat(8), keys.to("meta"))
