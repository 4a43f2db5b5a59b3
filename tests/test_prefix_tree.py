"""Prefix trees: every sequence is a path, no prefix occurs twice if sharing it pays, and attention follows paths."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_fast import linear_layers
from rlm_fast.tree_attention import Segment, TreeAttention, ancestors, attention_runs, prefix_tree
from torch.nn.functional import scaled_dot_product_attention

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


@settings(max_examples=40, deadline=None)
@given(sequences=SEQUENCES, min_saved=st.sampled_from([1, 4]), pairs=st.sampled_from([0, 20, 10**6]))
@pytest.mark.parametrize("key_heads", [4, 2])
def test_attention_and_its_gradients_are_those_of_each_sequence_alone(
    key_heads: int, sequences: list[list[int]], min_saved: int, pairs: int
) -> None:
    """Computed in double precision, with and without grouped-query attention."""
    segments, last = prefix_tree(sequences, min_saved=min_saved)
    sizes, parents = [x.stop - x.start for x in segments], [x.parent for x in segments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_layers, "PAIRS", pairs)
        tree = TreeAttention.of_tree(sizes, parents, torch.device("cpu"))
    draw = torch.Generator().manual_seed(len(sequences))
    shapes = (4, key_heads, key_heads)
    qkv = [torch.randn(1, heads, sum(sizes), 8, generator=draw).double().requires_grad_() for heads in shapes]
    places = torch.arange(sum(sizes)).split(sizes)
    found, expected = tree(*qkv, 0.3), []
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
    tree = TreeAttention.of_tree(sizes, [-1, 0, 0, 0, 0, 0, 0], torch.device("cpu"))
    assert [call.tokens for call in tree.calls] == [48, 49, 68]
    assert [None if call.visible is None else int(call.visible.sum()) for call in tree.calls] == [
        None,
        49 * 9 + 49 * 50 // 2,
        68 * 9 + (59 * 60 + 2 * 3 + 3 * 4 + 4 * 5) // 2,
    ]
