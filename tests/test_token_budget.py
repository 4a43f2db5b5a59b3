"""Micro-batches by number of tokens: the assignment is complete and each completion occurs once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from rlm_fast.pack import layouts
from rlm_fast.token_budget import (
    KV_SHARE,
    PORTIONS,
    TokenCounts,
    halve_until,
    merge_micro_batches,
    split_groups,
    split_into_portions,
    split_rule,
)


def step_of(groups: Sequence[tuple[int, Sequence[int]]], common: int = 0) -> dict[str, torch.Tensor]:
    """Return completions as the trainer holds them.

    Args:
        groups: Per group the tokens of its prompt and of each completion.
        common: First tokens that all prompts share.
    """
    rows = [(i, shown, written) for i, (shown, several) in enumerate(groups) for written in several]
    width, longest = max(shown for _, shown, _ in rows), max(written for *_, written in rows)
    prompts = [[0] * (width - n) + [7] * min(common, n) + [100 + i] * (n - min(common, n)) for i, n, _ in rows]
    return {
        "group": torch.tensor([i for i, *_ in rows]),
        "prompt_ids": torch.tensor(prompts),
        "prompt_mask": torch.tensor([[0] * (width - n) + [1] * n for _, n, _ in rows]),
        "completion_mask": torch.tensor([[1] * n + [0] * (longest - n) for *_, n in rows]),
    }


def counts(
    groups: Sequence[tuple[int, Sequence[int]]], skipped: Sequence[int] = (), common: int = 0, *, relative: bool = True
) -> TokenCounts:
    step = step_of(groups, common)
    active = torch.tensor([i not in skipped for i in step["group"].tolist()])
    return TokenCounts.of_step(step, active, relative=relative)


def sizes(*groups: tuple[int, list[int]], budget: int, skipped: tuple[int, ...] = ()) -> list[int]:
    return split_groups(counts(groups, skipped), budget)


def test_groups_share_a_portion_within_the_budget() -> None:
    """A prompt of 5, completions of 4, 4 and 2: 5 + 3 + 3 + 1 tokens, and (11 + 11 + 7) / 8 for attention."""
    three = [(5, [4, 4, 2])] * 3
    assert sizes(*three, budget=47) == [9]
    assert sizes(*three, budget=46) == [6, 3]
    assert sizes(*three, budget=31) == [3, 3, 3]


def test_too_large_group_is_split_and_its_prompt_repeated() -> None:
    assert sizes((5, [4, 4, 4, 4]), budget=14) == [2, 2]
    assert sizes((5, [4, 4, 4, 4]), budget=13) == [1, 1, 1, 1]
    assert sizes((5, [4, 4, 4, 4]), budget=3) == [1, 1, 1, 1], "a row is never cut"
    assert sizes((2, [3]), (5, [4, 4, 4]), budget=15) == [2, 2], "what is begun is filled up"


def test_micro_batches_of_a_large_model_are_merged_up_to_one_of_full_length() -> None:
    """Four prompts of 56 tokens that share 33, with eight completions of 12 tokens each."""
    step = counts([(56, [12] * 8)] * 4, common=33)

    def portions(rows: int) -> list[int]:
        rule = split_rule(None, num_sequences=rows, prompt_width=56, completion_width=12, num_parameters=135_000_000)
        return rule(step)

    assert portions(8) == [16, 16], "512 tokens"
    assert portions(4) == [8] * 4, "4 x 76.75 tokens"


def test_skipped_sequences_have_no_weight() -> None:
    assert sizes((5, [4, 4]), (5, [9, 9]), (5, [9, 9]), budget=14, skipped=(1, 2)) == [6]
    assert sizes((5, [0, 1]), budget=7) == [2], "nor does an empty one, or the last token"


@given(
    st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(0, 6), min_size=1, max_size=5)), min_size=1, max_size=5),
    st.integers(1, 40),
)
def test_every_sequence_is_in_one_micro_batch_within_the_limit(
    groups: list[tuple[int, list[int]]], budget: int
) -> None:
    each = [(i, shown, max(0, written - 1)) for i, (shown, several) in enumerate(groups) for written in several]
    rows = [(i, shown, tokens + (shown + 2 * tokens) / 8) for i, shown, tokens in each]
    found = sizes(*groups, budget=budget)
    assert min(found) > 0
    assert sum(found) == len(rows)
    for size in found:
        piece, rows = rows[:size], rows[size:]
        prompts = {i: shown for i, shown, _ in piece}
        assert len(piece) == 1 or sum(prompts.values()) + sum(weight for *_, weight in piece) <= budget


def test_micro_batches_are_merged_within_the_budget() -> None:
    """Two completions each: a prompt of 5 and twice 3 tokens, 5 + 6 + 22 / 8; a group may be split over two."""
    groups = [(5, [4, 4]), (5, [4] * 4), (5, [4, 4])]

    def found(budget: float, *skipped: int) -> list[int]:
        return merge_micro_batches(counts(groups, skipped), num_sequences=2, max_tokens=budget)

    assert found(4 * 13.75 - 5) == [8], "a prompt that spans two micro-batches is counted once"
    assert found(4 * 13.75 - 6) == [6, 2]
    assert found(13.75) == found(0) == [2, 2, 2, 2]
    assert found(2 * 13.75, 1) == [8], "skipped completions have no tokens"


def test_a_prefix_of_different_prompts_is_counted_once() -> None:
    """Three prompts of 20 that share 15: 20 + 5 + 5 tokens, and 3 · (3 + 26 / 8) for the completions."""
    groups = [(20, [4])] * 3
    assert split_groups(counts(groups, common=15), 48.75) == [3]
    assert split_groups(counts(groups, common=15), 48.5) == [2, 1], "a new portion has its first prompt whole"
    assert split_groups(counts(groups), 48.75) == [1, 1, 1]
    merge = partial(merge_micro_batches, num_sequences=1, max_tokens=48.75)
    assert (merge(counts(groups, common=15)), merge(counts(groups))) == ([3], [1, 1, 1])


def test_absolute_positions_share_no_prefix_of_prompts_of_unequal_length() -> None:
    groups = [(20, [4]), (21, [4]), (21, [4])]
    assert counts(groups, common=15, relative=False).shared == [0, 0, 15]
    assert counts(groups, common=15).shared == [0, 15, 15]


def test_the_count_is_that_of_the_packed_layout() -> None:
    groups = [(25, [4, 6]), (29, [3]), (27, [5, 1, 2])]  # forks that save 8 tokens or more
    step = step_of(groups, common=15)
    for row, completion in enumerate(step["completion_mask"]):  # no completions alike: the layout shares those too
        step.setdefault("completion_ids", torch.zeros_like(step["completion_mask"]))[row] = completion * (200 + row)
    (layout,) = layouts(
        torch.cat([step["prompt_ids"], step["completion_ids"]], 1),
        torch.cat([step["prompt_mask"], step["completion_mask"]], 1),
        step["completion_mask"].shape[1],
        relative=True,
    )
    tokens = counts(groups, common=15)
    copied = sum((shown + 2 * (written - 1)) / KV_SHARE for shown, several in groups for written in several)
    assert tokens.added_by(range(6), to_empty=True) - copied == layout.ids.shape[1]


def test_portions_are_split_to_the_number_of_the_busiest_process() -> None:
    assert halve_until([6], 1) == [6]
    assert halve_until([6, 1], 4) == [2, 1, 3, 1]
    assert sum(halve_until([5, 3], 8)) == 8


def test_the_last_micro_batches_of_a_step_have_the_portions() -> None:
    def micro_batch(first: int) -> dict[str, torch.Tensor]:
        rows = torch.arange(first, first + 2)
        mask = torch.ones(2, 3, dtype=torch.long)
        group = 1 - rows // 2 % 2
        prompts = {"prompt_ids": group.unsqueeze(1).expand(2, 3), "prompt_mask": mask}
        there = {**prompts, "completion_mask": mask, "advantages": torch.ones(2, 1)}
        return {"row": rows, "group": group, **there, "tokens": torch.tensor(7.0)}

    step = [micro_batch(first) for first in (0, 2, 4, 6)]

    def portions(micro_batches: int, max_tokens: int, **options: Any) -> list[int]:
        found = split_into_portions(step, micro_batches, partial(split_groups, max_tokens=max_tokens), **options)
        return [len(piece[PORTIONS]) for piece in found]

    found = split_into_portions(step, 2, partial(split_groups, max_tokens=18))
    assert [len(piece[PORTIONS]) for piece in found] == [0, 1, 0, 1]
    assert [piece[PORTIONS][0]["row"].tolist() for piece in (found[1], found[3])] == [[2, 3, 0, 1], [6, 7, 4, 5]]
    assert found[1][PORTIONS][0]["tokens"] == 7, "what is said of all rows is said of each portion"
    assert portions(4, 18) == [0, 1, 0, 1]
    assert portions(2, 5) == [2, 2, 2, 2]
    assert portions(2, 18, max_over_ranks=lambda count: 3) == [1, 2, 1, 2]
