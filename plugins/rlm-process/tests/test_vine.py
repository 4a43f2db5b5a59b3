"""Parts with continuations, against a table of values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rlm_process.state_values import step_advantages, step_labels, vine
from rlm_process.step_boundaries import Every, Pattern

from rlm_plugins.builtin.models import scratch

VALUES: dict[tuple[int, ...], list[float]] = {
    (): [0.0, 1.0, 0.0, 0.0],
    (4, 5): [1.0, 1.0, 0.0, 1.0],
    (4, 6): [0.0, 0.0, 0.0, 0.0],
}
"""Tokens so far → rewards of four continuations."""


class ScoringData:
    """Data of the scoring phase: the n-th continuation of a state ends in token n, with the n-th reward."""

    def __init__(self, rows: Sequence[Sequence[int]], **words: Any) -> None:
        self.logged: dict[str, float] = {}
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
            "log": self.logged.__setitem__,
            **self.words,
        }
        if part is vine:
            given["mask"] = given.get("mask", self.mask)
        knobs = {"steps": Every(every=2), "continuations": 4, **knobs}
        found: torch.Tensor = part(**given, **knobs)
        return found


ROWS = [[4, 5, 7, 7], [4, 6, 7], [4, 5, 8]]
PAID = torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]])


def test_vine_by_hand():
    """V is ¼ before the first step, ¾ after 4 5, 0 after 4 6."""
    data = ScoringData(ROWS, token_rewards=PAID)
    expected = [[0.5, 0.5, 0.25, 0.25], [-0.25, -0.25, 0.5, 0.0], [0.5, 0.5, -0.75, 0.0]]
    assert data(vine).tolist() == expected
    assert {prefix: data.encode.count(prefix) for prefix in VALUES} == dict.fromkeys(VALUES, 4)
    assert data.logged == {"continuations": 12.0, "shared_states": 0.5, "steps": 2.0}


def test_observations_get_no_advantage():
    mask = torch.tensor([[True, False, True, True]])
    found = ScoringData(ROWS[:1], token_rewards=PAID[:1], mask=mask)(vine)
    assert found.tolist() == [[0.5, 0.0, 0.25, 0.25]]


def test_first_limits_the_evaluated_states():
    data = ScoringData(ROWS, token_rewards=PAID)
    expected = [[0.75, 0.75, 0.0, 0.0], [0.25, 0.25, 0.0, 0.0], [-0.25, -0.25, 0.0, 0.0]]
    assert data(vine, first=1).tolist() == expected
    assert {*data.encode} == {()}


def test_equal_answers_are_scored_once():
    data = ScoringData(ROWS[:1], token_rewards=PAID[:1])
    data.write = lambda prompts, prefixes: [[1]] * len(prefixes)  # type: ignore[method-assign]
    assert data(vine).tolist() == [[0.0, 0.0, 0.0, 0.0]]  # both states are worth 1, and the row earned 1
    assert data.judged == [(1,), (4, 5, 1)]


def test_groups_do_not_share_states():
    data = ScoringData(ROWS[::2], token_rewards=PAID[::2], group=torch.tensor([0, 1]))
    data.write = lambda prompts, prefixes: [[1]] * len(prefixes)  # type: ignore[method-assign]
    data(vine)
    assert len(data.judged) == 4


def test_labels_by_hand():
    rewards = torch.tensor([1.0, 0.5, 0.0])
    hard = ScoringData(ROWS, rewards=rewards, step=3)
    assert hard(step_labels).tolist() == [[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    assert hard.logged == {"label": 0.5, "continuations": 8.0}
    soft = ScoringData(ROWS, rewards=rewards, step=3)
    assert soft(step_labels, soft=True, weight=2.0)[:, 1].tolist() == [1.5, 0.0, 1.5]
    lenient = ScoringData(ROWS, rewards=rewards, step=3)
    assert lenient(step_labels, right=0.5)[1].tolist() == [0.0, 0.0, 1.0, 0.0]


def test_labels_as_a_data_set(tmp_path: Path):
    tokenizer = scratch().tokenizer()
    rows = [tokenizer(text)["input_ids"] for text in ("1+1;2", "3;4;5")]
    save = tmp_path / "new" / "labels.jsonl"
    data = ScoringData(rows, rewards=torch.tensor([1.0, 0.0]), step=7, tokenizer=tokenizer)
    data.write = lambda prompts, prefixes: [[1]] * len(prefixes)  # type: ignore[method-assign]

    def score(prompts: Any, ids: Any, inputs: Any) -> torch.Tensor:
        return torch.tensor([torch.nan if row[-1] == 1 and len(row) == 3 else float(row != rows[1]) for row in ids])

    data.score = score  # type: ignore[method-assign]
    for _ in range(2):
        assert not data(step_labels, steps=Pattern(pattern=";"), weight=0.0, save=save).any()
    lines = [json.loads(line) for line in save.read_text(encoding="utf-8").splitlines()]
    assert lines[:2] == lines[2:]
    assert lines[:2] == [
        {"prompt": "?", "completions": ["1+1;", "2"], "labels": [True, True], "step": 7},
        {"prompt": "?", "completions": ["3;", "4;", "5"], "labels": [None, True, False], "step": 7},
    ]


@pytest.mark.parametrize("part", [vine, step_labels])
def test_rows_without_tokens(part: Any):
    words = {"rewards": torch.zeros(1), "step": 0} if part is step_labels else {}
    data = ScoringData([[]], token_rewards=torch.zeros(1, 2), mask=torch.zeros(1, 2).bool(), **words)
    if part is step_labels:
        data.words.pop("mask")
    assert not data(part).any()
    assert data.encode == []


@pytest.mark.parametrize(
    ("rewards", "values", "expected"),
    [
        ([0.0, 0.0, 2.0], [0.6, 0.2, 1.2], [-0.4, 1.0, 0.8]),
        ([0.0, 0.5, 1.0], [0.3, 0.7, None], [0.4, 0.8, 0.0]),
        ([0.0], [0.7], [-0.7]),
        ([0.0, 2.0, 1.0], [None, None, None], [0.0, 0.0, 0.0]),
        ([0.0, 1.0], [0.5, None], [0.5, 0.0]),
        ([], [], []),
    ],
)
def test_by_hand(rewards: list[float], values: list[float | None], expected: list[float]):
    assert step_advantages(rewards, values) == pytest.approx(expected)
