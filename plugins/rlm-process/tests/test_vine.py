"""The parts that go on from states, against values that stand in a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rlm_process.knobs import Every, Pattern
from rlm_process.sampled_labels import step_labels
from rlm_process.vine import vine

from rlm_plugins.builtin.models import scratch
from rlm_plugins.functional.statistics import whiten
from rlm_plugins.registry.part import Part

VALUES: dict[tuple[int, ...], list[float]] = {
    (): [0.0, 1.0, 0.0, 0.0],
    (4, 5): [1.0, 1.0, 0.0, 1.0],
    (4, 6): [0.0, 0.0, 0.0, 0.0],
}
"""Tokens so far → what four answers written on from there earn."""


class Room:
    """The words of the scoring room: the n-th answer from a state ends in the token n, and earns its number there."""

    def __init__(self, rows: Sequence[Sequence[int]], **words: Any) -> None:
        self.told: dict[str, float] = {}
        self.encode: list[tuple[int, ...]] = []
        self.judged: list[tuple[int, ...]] = []
        self.rows = rows
        width = max(map(len, rows))
        self.mask = torch.tensor([[t < len(row) for t in range(width)] for row in rows])
        self.own = [*words.pop("rewards", [])]
        self.words = words

    def write(self, prompts: Sequence[str], prefixes: Sequence[Sequence[int]]) -> list[list[int]]:
        found = []
        for prefix in map(tuple, prefixes):
            found.append([self.encode.count(prefix)])
            self.encode.append(prefix)
        return found

    def score(self, prompts: Sequence[str], ids: Sequence[Sequence[int]], inputs: Sequence[Any]) -> torch.Tensor:
        assert len(prompts) == len(ids) == len(inputs)
        self.judged += map(tuple, ids)
        own = {tuple(row): float(reward) for row, reward in zip(self.rows, self.own, strict=False)}
        return torch.tensor([own[each] if (each := tuple(row)) in own else VALUES[each[:-1]][each[-1]] for row in ids])

    def __call__(self, part: Any, **knobs: Any) -> torch.Tensor:
        n = len(self.rows)
        given = {
            "token_rewards": torch.zeros(self.mask.shape),
            "group": torch.zeros(n).long(),
            "completion_ids": self.rows,
            "prompts": ["?"] * n,
            "inputs": [{}] * n,
            "generate": self.write,
            "rewards_of": self.score,
            "tokenizer": None,
            "log": self.told.__setitem__,
            **self.words,
        }
        if part is vine:
            given["mask"] = given.get("mask", self.mask)
        knobs = {"steps": Every(every=2), "continuations": 4, **knobs}
        found: torch.Tensor = part(**given, **knobs)
        return found


ROWS = [[4, 5, 7, 7], [4, 6, 7], [4, 5, 8]]
PAID = torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]])


def test_credit_by_hand():
    """V is ¼ before the first step, ¾ after 4 5, nothing after 4 6."""
    room = Room(ROWS, token_rewards=PAID)
    expected = [[0.5, 0.5, 0.25, 0.25], [-0.25, -0.25, 0.5, 0.0], [0.5, 0.5, -0.75, 0.0]]
    assert room(vine).tolist() == expected
    assert {prefix: room.encode.count(prefix) for prefix in VALUES} == dict.fromkeys(VALUES, 4)
    assert room.told == {"continuations": 12.0, "shared_states": 0.5, "steps": 2.0}


def test_what_a_step_is_paid_on_the_way_is_its_own():
    paid = torch.tensor([[0.25, 0.25, 0.0, 1.0]])
    assert Room(ROWS[:1], token_rewards=paid)(vine).tolist() == [[1.0, 1.0, 0.25, 0.25]]


def test_what_the_world_said_is_paid_nothing():
    mask = torch.tensor([[True, False, True, True]])
    found = Room(ROWS[:1], token_rewards=PAID[:1], mask=mask)(vine)
    assert found.tolist() == [[0.5, 0.0, 0.25, 0.25]]


def test_only_the_first_states_may_be_valued():
    room = Room(ROWS, token_rewards=PAID)
    expected = [[0.75, 0.75, 0.0, 0.0], [0.25, 0.25, 0.0, 0.0], [-0.25, -0.25, 0.0, 0.0]]
    assert room(vine, first=1).tolist() == expected
    assert {*room.encode} == {()}


def test_whitened_over_the_batch():
    plain, room = Room(ROWS, token_rewards=PAID)(vine), Room(ROWS, token_rewards=PAID)
    torch.testing.assert_close(room(vine, whiten=True), whiten(plain, room.mask))


def test_an_answer_that_came_twice_is_judged_once():
    room = Room(ROWS[:1], token_rewards=PAID[:1])
    room.write = lambda prompts, prefixes: [[1]] * len(prefixes)  # type: ignore[method-assign]
    assert room(vine).tolist() == [[0.0, 0.0, 0.0, 0.0]]  # both states are worth 1, and the row earned 1
    assert room.judged == [(1,), (4, 5, 1)]


def test_another_group_asks_for_itself():
    room = Room(ROWS[::2], token_rewards=PAID[::2], group=torch.tensor([0, 1]))
    room.write = lambda prompts, prefixes: [[1]] * len(prefixes)  # type: ignore[method-assign]
    room(vine)
    assert len(room.judged) == 4


def test_labels_by_hand():
    rewards = torch.tensor([1.0, 0.5, 0.0])
    hard = Room(ROWS, rewards=rewards, step=3)
    assert hard(step_labels).tolist() == [[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    assert hard.told == {"label": 0.5, "continuations": 8.0}
    soft = Room(ROWS, rewards=rewards, step=3)
    assert soft(step_labels, soft=True, weight=2.0)[:, 1].tolist() == [1.5, 0.0, 1.5]
    lenient = Room(ROWS, rewards=rewards, step=3)
    assert lenient(step_labels, right=0.5)[1].tolist() == [0.0, 0.0, 1.0, 0.0]


def test_the_last_step_is_judged_by_what_no_shaper_has_bent():
    """The part is not even told `rewards`: what the rewards say of the row itself is asked once, as of the others."""
    room = Room(ROWS, rewards=torch.tensor([1.0, 0.0, 0.0]), step=3)
    assert "rewards" not in Part("rlm_shapers", "step_labels", "rlm_process", step_labels).needs
    assert room(step_labels)[:, 3].tolist() == [1.0, 0.0, 0.0]
    assert [room.judged.count(tuple(row)) for row in ROWS] == [1, 1, 1]


def test_labels_as_a_data_set(tmp_path: Path):
    tokenizer = scratch().tokenizer()
    rows = [tokenizer(text)["input_ids"] for text in ("1+1;2", "3;4;5")]
    save = tmp_path / "new" / "labels.jsonl"
    room = Room(rows, rewards=torch.tensor([1.0, 0.0]), step=7, tokenizer=tokenizer)
    room.write = lambda prompts, prefixes: [[1]] * len(prefixes)  # type: ignore[method-assign]

    def score(prompts: Any, ids: Any, inputs: Any) -> torch.Tensor:
        return torch.tensor([torch.nan if row[-1] == 1 and len(row) == 3 else float(row != rows[1]) for row in ids])

    room.score = score  # type: ignore[method-assign]
    for _ in range(2):
        assert not room(step_labels, steps=Pattern(pattern=";"), weight=0.0, save=save).any()
    lines = [json.loads(line) for line in save.read_text(encoding="utf-8").splitlines()]
    assert lines[:2] == lines[2:]
    assert lines[:2] == [
        {"prompt": "?", "completions": ["1+1;", "2"], "labels": [True, True], "step": 7},
        {"prompt": "?", "completions": ["3;", "4;", "5"], "labels": [None, True, False], "step": 7},
    ]


@pytest.mark.parametrize("part", [vine, step_labels])
def test_rows_without_tokens(part: Any):
    words = {"rewards": torch.zeros(1), "step": 0} if part is step_labels else {}
    room = Room([[]], token_rewards=torch.zeros(1, 2), mask=torch.zeros(1, 2).bool(), **words)
    if part is step_labels:
        room.words.pop("mask")
    assert not room(part).any()
    assert room.encode == []
