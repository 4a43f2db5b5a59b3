"""Shared prompts: prefix trees, and equal logits and samples from the KV cache, with any evictions."""

from __future__ import annotations

import random
from typing import Any

import fixtures_models
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from repetition import one_in
from rlm_fast import fast, linear_layers
from rlm_fast import tree_attention as shared
from rlm_fast.fast import shares_prefixes
from rlm_fast.kv_cache import KVState, PromptTree, distinct_prompts, preallocate, surviving_indices, unpadded
from rlm_fast.llama_step import LlamaStep
from rlm_fast.loop import ActiveSequences
from rlm_fast.packed_attention import TreeAttention, attention_runs
from rlm_fast.tree_attention import (
    Segment,
    SharedPrefix,
    ancestors,
    attend_all,
    prefix_tree,
    sharing_pays,
)
from test_fast_generate import config, prompts, same, without_fallback
from torch.nn.attention.flex_attention import create_mask, flex_attention
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import DynamicCache

FAMILIES: dict[str, dict[str, Any]] = {"Llama": {"num_key_value_heads": 4}, "Qwen2": {}, "Qwen3": {}}
"""Each head with keys of its own; shared keys and biases; heads that are normalised."""
NEVER = 10**9
BEGINNINGS = {
    "equal lengths": ("templateab", "templatecd"),
    "one begins another": ("template", "templateab", "temp"),
    "two pairs": ("abcuv", "abcxy", "defgh", "def"),
    "nothing": ("abc", "defg", "hi"),
    "one prompt": ("template",),
}
"""Prompts by letters."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Record the number of shared prompts and of queries in each attention to a shared prefix."""
    found: list[tuple[int, int]] = []
    seen = SharedPrefix.attend

    def watched(self: SharedPrefix, number: int, query: torch.Tensor, *rest: Any) -> Any:
        found.append((len(self.kv[number][0]), len(query)))
        return seen(self, number, query, *rest)

    monkeypatch.setattr(SharedPrefix, "attend", watched)
    return found


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
    monkeypatch.setattr(shared, "MIN_SHARED_KEYS", least)
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
    past, step = KVState(cache, order, places[:, width : width + 1], there[:, : width + 1]), LlamaStep(model)
    left, alive = torch.arange(len(twin)), []
    for t in range(tokens):
        alive.append((len({*twin[left].tolist()}), len(left)))
        assert torch.allclose(step(words[left, t], past), usual[left, t], atol=1e-5)
        done = torch.tensor([draw.random() < 0.3 for _ in left])
        done[draw.randrange(len(left))] = False
        past.evict(places := surviving_indices(done.tolist()))
        left = left[places]
    once = kept[:: model.config.num_hidden_layers]
    assert once == alive[: len(once)], "prompts without rows are gone"
    assert len(once) == tokens if least == 0 else len(once) < tokens
    assert bool(once) == (least == 0 or (least == 100 and len(groups) < len(twin)))


@pytest.mark.parametrize("sizes", [(7,), (1, 2, 4), (2, 2, 2), (1, 1)])
def test_both_parts_are_one_softmax(sizes: tuple[int, ...]) -> None:
    """The reference is in double precision; a prompt may consist of padding."""
    draw = torch.Generator().manual_seed(0)
    twin = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    twin = twin[torch.randperm(len(twin), generator=draw)]
    keys, values = (torch.randn(len(sizes), 2, 9, 8, generator=draw) for _ in range(2))
    own, own_values = (torch.randn(len(twin), 2, 5, 8, generator=draw) for _ in range(2))
    query = torch.randn(len(twin), 2, 3, 8, generator=draw)
    mask = torch.zeros(len(sizes), 1, 1, 9)
    mask[0, ..., :4] = mask[-1] = torch.finfo(torch.float32).min
    mask = pad(mask[twin], (0, 5))
    k, v = (torch.cat(x, 2).double() for x in ((keys[twin], own), (values[twin], own_values)))
    usual = scaled_dot_product_attention(query.double(), k, v, attn_mask=mask.double(), scale=0.3)
    prefix = SharedPrefix([(keys, values)], twin, mask)
    found = attend_all([prefix], 0, query, own, own_values, None, 0.3)
    torch.testing.assert_close(found, usual.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("least", [0, 50])
@pytest.mark.parametrize("lengths", [(1,), (4, 4), (9, 1), (3, 1, 5)])
def test_the_samples_are_those_of_transformers(
    least: int, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, kept: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(shared, "MIN_SHARED_KEYS", least)
    model = fixtures_models.adapted(fixtures_models.model("Qwen3")).eval()
    for times in (1, 3, 8):
        same(model, prompts(*lengths, times=times), config())
    assert kept


def test_an_empty_prompt_is_no_matter(monkeypatch: pytest.MonkeyPatch, kept: list[tuple[int, int]]) -> None:
    monkeypatch.setattr(shared, "MIN_SHARED_KEYS", 0)
    inputs = prompts(3, 2, times=3)
    inputs["input_ids"][3:], inputs["attention_mask"][3:] = 0, 0
    same(fixtures_models.model("Llama").eval(), inputs, config())
    assert kept


def test_a_prompt_has_one_place_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fixtures_models.model("Llama").eval()
    for least, times in ((0, 1), (NEVER, 4)):
        monkeypatch.setattr(shared, "MIN_SHARED_KEYS", least)
        cache = DynamicCache(config=model.config)
        preallocate(cache)
        model(torch.arange(1, 6)[None], past_key_values=cache, use_cache=True)
        past = KVState(cache, torch.zeros(4, dtype=torch.long), torch.full((4, 1), 5), None)
        held = past._prompts.kv[0][0] if past._prompts else cache.layers[0].keys
        assert len(held) == times
        assert cache.get_seq_length() == (5 if times > 1 else 0), "its own tokens alone"


def test_small_groups_copy_the_prompt_cache() -> None:
    keys = torch.empty(2, 2, 112, 64)
    assert sharing_pays(16 - 2, keys)
    assert not sharing_pays(4 - 2, keys)
    assert not sharing_pays(0, keys)
    assert sharing_pays(4 - 2, keys, torch.empty(1, 2, 400, 64)), "with what all prompts start with"
    assert not sharing_pays(16 - 2, keys.to("meta"))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("texts", BEGINNINGS.values(), ids=BEGINNINGS)
@pytest.mark.parametrize("least", [0, 100, NEVER], ids=["kept once", "copied at last", "copied"])
@torch.no_grad()
def test_logits_after_prompts_that_start_alike(
    family: str, texts: tuple[str, ...], least: int, monkeypatch: pytest.MonkeyPatch, kept: list[tuple[int, int]]
) -> None:
    """Prefill and decoding with evictions in any order give the logits of the whole sequence."""
    monkeypatch.setattr(shared, "MIN_SHARED_KEYS", least)
    model = fixtures_models.adapted(fixtures_models.model(family, **FAMILIES[family])).eval()
    prompts_of = [[ord(letter) - ord("a") + 3 for letter in text] for text in texts]
    draw, tokens = random.Random(len(texts)), 8
    twin = torch.tensor(draw.sample([i for i in range(len(texts)) for _ in range(1 + 2 * i)], len(texts) ** 2))
    words = torch.randint(10, fixtures_models.WORDS, (len(twin), tokens), generator=torch.Generator().manual_seed(2))
    usual = []
    for row, i in enumerate(twin.tolist()):
        whole = torch.cat([torch.tensor(prompts_of[i]), words[row]])
        usual.append(model(whole[None]).logits[0, len(prompts_of[i]) - 1 :])
    cache = DynamicCache(config=model.config)
    preallocate(cache)
    step = LlamaStep(model)
    tree = PromptTree(prompts_of, torch.device("cpu"), min_saved=1)
    logits, past = tree.prefill(step, cache, twin)
    left = torch.arange(len(twin))
    assert torch.allclose(logits[twin], torch.stack([x[0] for x in usual]), atol=1e-5)
    for t in range(tokens):
        expected = torch.stack([usual[row][t + 1] for row in left])
        assert torch.allclose(step(words[left, t], past), expected, atol=1e-5)
        done = torch.tensor([draw.random() < 0.3 for _ in left])
        done[draw.randrange(len(left))] = False
        past.evict(places := surviving_indices(done.tolist()))
        left = left[places]
    assert bool(kept) == (least == 0 or (least == 100 and len(twin) > 3))


def test_prompts_that_start_alike_are_computed_once() -> None:
    for name, tokens in {"one begins another": 10, "nothing": 9, "two pairs": 12, "equal lengths": 12}.items():
        prompts_of = [[ord(letter) for letter in text] for text in BEGINNINGS[name]]
        assert len(PromptTree(prompts_of, torch.device("cpu"), min_saved=1)._tokens) == tokens


@pytest.mark.parametrize("least", [0, NEVER])
@pytest.mark.parametrize("texts", BEGINNINGS.values(), ids=BEGINNINGS)
@pytest.mark.parametrize("times", one_in(2, [6, 1]))
def test_samples_of_prompts_that_start_alike(
    texts: tuple[str, ...], times: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of samples is tested, and greedy decoding as in an evaluation."""
    monkeypatch.setattr(shared, "MIN_SHARED_KEYS", least)
    monkeypatch.setattr("rlm_fast.loop.MIN_SAVED", 1)
    rows = [[ord(letter) - ord("a") + 3 for letter in text] for text in texts for _ in range(times)]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    with without_fallback():
        for family in ("Qwen2", "GPT2", "Phi3"):
            model = fixtures_models.adapted(fixtures_models.model(family)).eval()
            same(model, inputs, config())
            same(model, inputs, config(do_sample=False))


def test_the_beginning_is_prefilled_once_by_a_decoder_of_another_kind() -> None:
    model, read = fixtures_models.model("GPT2").eval(), []
    ids = torch.tensor([[0, *range(3, 13), 20], [*range(3, 13), 21, 22]])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    same(model, inputs, config(max_new_tokens=2, eos_token_id=None))
    model.register_forward_pre_hook(lambda _, __, given: read.append(tuple(given["input_ids"].shape)), with_kwargs=True)
    fast.fast_generate(model.generate, model, inputs, config(max_new_tokens=2, eos_token_id=None))
    assert read == [(1, 10), (2, 2), (2, 1)]


def test_a_decoder_that_cannot_continue_a_beginning_shares_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check detects it, and the rest of the decoding loop is still used."""
    after = ActiveSequences._prefill_after
    monkeypatch.setattr(ActiveSequences, "_prefill_after", lambda *given: after(*given).roll(1, 1))
    model = fixtures_models.model("GPT2").eval()
    ids = torch.tensor([[0, 0, *range(3, 13), 20], [*range(3, 13), 21, 22, 23]])
    with without_fallback():
        same(model, {"input_ids": ids, "attention_mask": (ids != 0).long()}, config())
    assert not shares_prefixes(model)


def test_positions_of_ones_own_are_left_to_the_model() -> None:
    ids, mask = torch.tensor([[0, 7, 8]]), torch.tensor([[0, 1, 1]])
    assert unpadded(ids, mask, torch.tensor([[0, 0, 1]])) == [[7, 8]]
    assert unpadded(ids, mask, torch.tensor([[0, 1, 2]])) is None
    assert unpadded(ids, mask, None) is None
    assert unpadded(ids, torch.zeros_like(mask), torch.zeros_like(mask)) is None, "an empty prompt"
    assert unpadded(ids, None, torch.arange(3)[None]) == [[0, 7, 8]]


SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=12)


def path(segments: list[Segment], last: int) -> list[int]:
    return [*ancestors(last, [segment.parent for segment in segments])[::-1], last]


def tokens_of(segments: list[Segment], sequences: list[list[int]], indices: list[int]) -> list[int]:
    pieces = (sequences[segments[i].sequence][segments[i].start : segments[i].stop] for i in indices)
    return [token for piece in pieces for token in piece]


@settings(max_examples=100, deadline=None)
@given(sequences=SEQUENCES, min_saved=st.sampled_from([1, 4, 99]))
def test_each_sequence_is_a_path_of_the_tree(sequences: list[list[int]], min_saved: int) -> None:
    segments, last = prefix_tree(sequences, min_saved=min_saved)
    for sequence, end in zip(sequences, last, strict=True):
        assert tokens_of(segments, sequences, path(segments, end)) == sequence
    assert all(segment.parent < index for index, segment in enumerate(segments))
    assert all(segment.stop > segment.start for segment in segments)


@settings(max_examples=100, deadline=None)
@given(sequences=SEQUENCES)
def test_no_prefix_occurs_twice(sequences: list[list[int]]) -> None:
    """The tokens of a full tree are the distinct prefixes of the sequences."""
    segments, _ = prefix_tree(sequences, min_saved=1)
    prefixes = {tuple(sequence[: n + 1]) for sequence in sequences for n in range(len(sequence))}
    assert sum(segment.stop - segment.start for segment in segments) == len(prefixes)


def test_short_prefixes_are_repeated() -> None:
    """Saving two tokens is not worth a branch; equal sequences are always one path."""
    segments, last = prefix_tree([[1, 2, 3], [1, 2, 4], [1, 2, 4]], min_saved=3)
    assert [(x.start, x.stop, x.parent) for x in segments] == [(0, 3, -1), (0, 3, -1)]
    assert last == [0, 1, 1]


def test_a_prefix_of_another_sequence_ends_inside_the_tree() -> None:
    segments, last = prefix_tree([[1, 2, 3, 4], [1, 2]], min_saved=1)
    assert [(x.start, x.stop, x.parent) for x in segments] == [(0, 2, -1), (2, 4, 0)]
    assert last == [1, 0]


def test_different_keys_share_no_prefix() -> None:
    segments, last = prefix_tree([[1, 2], [1, 2], [1, 2]], keys=["a", "b", "a"], min_saved=1)
    assert [x.parent for x in segments] == [-1, -1]
    assert last == [0, 1, 0]


def attend_by(kernel: str, tree: TreeAttention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the attention of a tree as a kernel gets it; FlexAttention has no gradient on a CPU, so its mask has."""
    if kernel == "sdpa":
        return tree(q, k, v, 0.3)
    if kernel == "flash":
        sequences = {f"cu_seqlens_{x}": tree.lengths[f"cu_seq_lens_{x}"] for x in "qk"}
        heads_second = [x[0].transpose(0, 1) for x in (q, tree.along_paths(k), tree.along_paths(v))]
        return fixtures_models.flash_varlen(*heads_second, **sequences, softmax_scale=0.3, causal=True)[None]
    with torch.no_grad():
        flex = flex_attention(
            q.detach(), k.detach(), v.detach(), block_mask=tree.block_mask, scale=0.3, enable_gqa=True
        )
    visible = create_mask(tree.block_mask.mask_mod, 1, 1, q.shape[2], q.shape[2], device="cpu")
    output = scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=0.3, enable_gqa=True)
    torch.testing.assert_close(flex, output.detach(), rtol=1e-9, atol=1e-9)
    return output.transpose(1, 2)


@settings(max_examples=40, deadline=None)
@given(sequences=SEQUENCES, min_saved=st.sampled_from([1, 4]), pairs=st.sampled_from([0, 20, 10**6]))
@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("kernel", ["sdpa", "flash", "flex"])
def test_attention_and_its_gradients_are_those_of_each_sequence_alone(
    kernel: str, key_heads: int, sequences: list[list[int]], min_saved: int, pairs: int
) -> None:
    """Computed in double precision, with and without grouped-query attention."""
    segments, last = prefix_tree(sequences, min_saved=min_saved)
    sizes, parents = [x.stop - x.start for x in segments], [x.parent for x in segments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_layers, "PAIRS", pairs)
        tree = TreeAttention(tuple(sizes), tuple(parents), torch.device("cpu"))
    draw = torch.Generator().manual_seed(len(sequences))
    shapes = (4, key_heads, key_heads)
    qkv = [torch.randn(1, heads, sum(sizes), 8, generator=draw).double().requires_grad_() for heads in shapes]
    places = torch.arange(sum(sizes)).split(sizes)
    found, expected = attend_by(kernel, tree, *qkv), []
    actual = []
    for end in last:
        where = torch.cat([places[i] for i in path(segments, end)])
        q, k, v = (x[:, :, where] for x in qkv)
        alone = scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)
        expected.append(alone.transpose(1, 2))
        actual.append(found[:, where])
    actual, expected = torch.cat(actual, 1), torch.cat(expected, 1)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
    weight = torch.randn(expected.shape, generator=draw).double()
    gradients = (torch.autograd.grad((x * weight).sum(), qkv) for x in (actual, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_attention_computes_few_masked_pairs() -> None:
    """Each long completion has a call of its own; short ones share a call if it masks few pairs."""
    sizes = [9, 39, 49, 59, 2, 3, 4]
    runs = attention_runs(sizes, [-1, 0, 0, 0, 0, 0, 0], 2**12)
    assert [list(run.segments) for run in runs] == [[0, 1], [2], [3, 4, 5, 6]]
    assert [run.context for run in runs] == [(), (0,), (0,)]
    tree = TreeAttention(tuple(sizes), (-1, 0, 0, 0, 0, 0, 0), torch.device("cpu"))
    assert [call.tokens for call in tree.calls[1]] == [48, 49, 68]
    assert [None if call.visible is None else int(call.visible.sum()) for call in tree.calls[1]] == [
        None,
        49 * 9 + 49 * 50 // 2,
        68 * 9 + (59 * 60 + 2 * 3 + 3 * 4 + 4 * 5) // 2,
    ]
