"""Micro-batches by number of tokens: the assignment is complete and each completion occurs once."""

from __future__ import annotations

from functools import partial

import torch
from hypothesis import given
from hypothesis import strategies as st

from rlm_plugins.packing.token_budget import (
    PORTIONS,
    halve_until,
    merge_micro_batches,
    split_groups,
    split_into_portions,
)


def sizes(*groups: tuple[int, list[int]], budget: int, skipped: tuple[int, ...] = ()) -> list[int]:
    """Per group the tokens of its prompt and of each completion → rows of each portion."""
    rows = [(i, shown, written) for i, (shown, several) in enumerate(groups) for written in several]
    group, shown, written = (torch.tensor(column) for column in zip(*rows, strict=True))
    return split_groups(group, shown, written, torch.tensor([i not in skipped for i in group.tolist()]), budget)


def test_groups_share_a_portion_within_the_budget() -> None:
    """A prompt of 5, completions of 4, 4 and 2: 5 + 3 + 3 + 1 tokens, and (11 + 11 + 7) / 8 for what they look at."""
    three = [(5, [4, 4, 2])] * 3
    assert sizes(*three, budget=47) == [9]
    assert sizes(*three, budget=46) == [6, 3]
    assert sizes(*three, budget=31) == [3, 3, 3]


def test_too_large_group_is_split_and_its_prompt_repeated() -> None:
    assert sizes((5, [4, 4, 4, 4]), budget=14) == [2, 2]
    assert sizes((5, [4, 4, 4, 4]), budget=13) == [1, 1, 1, 1]
    assert sizes((5, [4, 4, 4, 4]), budget=3) == [1, 1, 1, 1], "a row is never cut"
    assert sizes((2, [3]), (5, [4, 4, 4]), budget=15) == [2, 2], "what is begun is filled up"


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
    """Two rows each: a prompt of 5 and twice 3 tokens, 5 + 6 + 22 / 8; half a group stands in two of them."""
    group, one = torch.tensor([0, 0, 1, 1, 1, 1, 2, 2]), torch.ones(8, dtype=torch.long)

    def found(budget: float, skipped: int | None = None) -> list[int]:
        return merge_micro_batches(group, 5 * one, 4 * one, group != skipped, num_sequences=2, max_tokens=budget)

    assert found(4 * 13.75) == [8]
    assert found(3 * 13.75) == [6, 2]
    assert found(13.75) == found(0) == [2, 2, 2, 2]
    assert found(2 * 13.75, skipped=1) == [8], "what is not read weighs nothing"


def test_portions_are_split_to_the_number_of_the_busiest_process() -> None:
    assert halve_until([6], 1) == [6]
    assert halve_until([6, 1], 4) == [2, 1, 3, 1]
    assert sum(halve_until([5, 3], 8)) == 8


def test_the_last_micro_batches_of_a_step_have_the_portions() -> None:
    def micro_batch(first: int) -> dict[str, torch.Tensor]:
        rows = torch.arange(first, first + 2)
        mask = torch.ones(2, 3)
        there = {"prompt_mask": mask, "completion_mask": mask, "advantages": torch.ones(2, 1)}
        return {"row": rows, "group": 1 - rows // 2 % 2, **there, "tokens": torch.tensor(7.0)}

    step = [micro_batch(first) for first in (0, 2, 4, 6)]
    found = split_into_portions(step, 2, partial(split_groups, max_tokens=18))
    assert [len(piece[PORTIONS]) for piece in found] == [0, 1, 0, 1]
    assert [piece[PORTIONS][0]["row"].tolist() for piece in (found[1], found[3])] == [[2, 3, 0, 1], [6, 7, 4, 5]]
    assert found[1][PORTIONS][0]["tokens"] == 7, "what is said of all rows is said of each portion"
    assert [len(piece[PORTIONS]) for piece in split_into_portions(step, 4, partial(split_groups, max_tokens=18))] == [
        0,
        1,
        0,
        1,
    ]
    assert [len(piece[PORTIONS]) for piece in split_into_portions(step, 2, partial(split_groups, max_tokens=5))] == [
        2,
        2,
        2,
        2,
    ]
    several = split_into_portions(step, 2, partial(split_groups, max_tokens=18), max_over_ranks=lambda count: 3)
    assert [len(piece[PORTIONS]) for piece in several] == [1, 2, 1, 2]
