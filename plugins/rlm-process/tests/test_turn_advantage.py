"""Advantages of turns and trees: numbering, returns, comparable turns, and reconstruction from token ids."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_process.advantages import tree, turn_relative
from rlm_process.step_boundaries import Pattern
from rlm_process.tree_rollout import Tree

from rlm_plugins.builtin.models import scratch

ROW = st.lists(st.tuples(st.booleans(), st.integers(1, 2), st.sampled_from([0.0, 1.0, 0.5])), min_size=6, max_size=6)


def by_hand(rows: list[Any], group: list[int], *, alike: str, gamma: float, scale: str) -> list[list[float]]:
    """Compute the formula with explicit loops over turns."""
    turns_of_rows = []
    for i, row in enumerate(rows):
        heard: list[int] = []
        speaking = False
        mine: list[dict[str, Any]] = []
        for t, (ours, token, paid) in enumerate(row):
            if ours and not speaking:
                key = len(mine) if alike == "number" else tuple(heard)
                mine.append({"row": i, "key": (group[i], key), "tokens": [], "paid": 0.0})
            if ours:
                mine[-1]["tokens"].append(t)
                mine[-1]["paid"] += paid
                heard = []
            else:
                heard.append(token)
            speaking = ours
        for u, each in enumerate(mine):
            each["return"] = sum(gamma ** (v - u) * later["paid"] for v, later in enumerate(mine) if v >= u)
        turns_of_rows += mine
    found = [[0.0] * len(row) for row in rows]
    for each in turns_of_rows:
        returns = [other["return"] for other in turns_of_rows if other["key"] == each["key"]]
        if max(returns) == min(returns):
            continue
        mean = sum(returns) / len(returns)
        std = (sum((x - mean) ** 2 for x in returns) / (len(returns) - 1)) ** 0.5
        for t in each["tokens"]:
            found[each["row"]][t] = (each["return"] - mean) / (1.0 if scale == "none" else std + 1e-4)
    return found


def read(rows: list[Any]) -> tuple[torch.Tensor, list[list[int]], torch.Tensor]:
    mask = torch.tensor([[ours for ours, _, _ in row] for row in rows])
    ids = [[token for _, token, _ in row] for row in rows]
    paid = torch.tensor([[paid for _, _, paid in row] for row in rows], dtype=torch.float64)
    return mask, ids, paid.where(mask, 0.0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    rows=st.lists(ROW, min_size=1, max_size=5),
    alike=st.sampled_from(["number", "observation"]),
    gamma=st.sampled_from([1.0, 0.5, 0.0]),
    scale=st.sampled_from(["group", "none"]),
)
def test_turn_relative_matches_the_oracle(rows: Any, alike: Any, gamma: float, scale: Any):
    mask, ids, paid = read(rows)
    group = torch.tensor([i % 2 for i in range(len(rows))])
    actual = turn_relative(paid.sum(1), paid, ids, group, mask, alike=alike, gamma=gamma, scale=scale)
    expected = by_hand(rows, group.tolist(), alike=alike, gamma=gamma, scale=scale)
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64).where(mask, 0.0))


@pytest.mark.parametrize("omega", [0.0, 1.0, 2.0])
def test_episode_term(omega: float):
    mask = torch.tensor([[True, False, True], [True, False, True]])
    paid = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    given: Any = (paid.sum(1), paid, mask.long().tolist(), torch.tensor([0, 0]), mask)
    found = turn_relative(*given, omega=omega, episode=1.0, scale="none")
    turn = torch.tensor([[-1.0, 0.0, -1.5], [1.0, 0.0, 1.5]])
    whole = torch.tensor([[-1.0, 0.0, -1.0], [1.0, 0.0, 1.0]])
    torch.testing.assert_close(found, omega * turn + whole)


ROWS = st.lists(
    st.tuples(st.lists(st.integers(1, 2), min_size=1, max_size=4), st.sampled_from([0.0, 1.0, 0.5])),
    min_size=1,
    max_size=6,
)


def live(rows: list[list[int]]) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[t < len(row) for t in range(width)] for row in rows])


def by_prefixes(rows: list[list[int]], rewards: list[float], power: float) -> list[list[float]]:
    """Compute the formula with explicit loops over prefixes."""

    def through(prefix: list[int]) -> list[int]:
        return [j for j, row in enumerate(rows) if row[: len(prefix)] == prefix]

    def value(prefix: list[int]) -> float:
        there = through(prefix)
        return sum(rewards[j] for j in there) / len(there)

    found = []
    for row in rows:
        line = []
        for t in range(len(row)):
            here, leaves = row[: t + 1], len(through(row[: t + 1]))
            parent_value = next((row[:k] for k in range(t, -1, -1) if len(through(row[:k])) > leaves), [])
            gain = 2 * value(here) - value([]) - value(parent_value)
            line.append(gain / leaves**power if max(rewards) > min(rewards) else 0.0)
        found.append(line)
    return found


@settings(max_examples=40, deadline=None, derandomize=True)
@given(rows=ROWS, others=ROWS, power=st.sampled_from([0.0, 0.5, 1.0]))
def test_tree_matches_the_oracle(rows: Any, others: Any, power: float):
    drawn = [*rows, *others]
    ids = [row for row, _ in drawn]
    rewards = torch.tensor([reward for _, reward in drawn], dtype=torch.float64)
    group = torch.tensor([0] * len(rows) + [1] * len(others))
    found = tree(rewards, ids, group, live(ids), shared=power)
    lines = [line for part in (rows, others) for line in by_prefixes(*map(list, zip(*part, strict=True)), power)]
    for row, line in enumerate(lines):
        torch.testing.assert_close(found[row, : len(line)], torch.tensor(line, dtype=torch.float64))
        assert not found[row, len(line) :].any()


def test_observations_separate_nodes_and_get_no_advantage():
    rows = [[1, 8, 3], [1, 9, 3]]
    mask = live(rows)
    mask[:, 1] = False
    found = tree(torch.tensor([1.0, 0.0]), rows, torch.zeros(2).long(), mask)
    assert found.tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]


class LetterPolicy:
    """A policy that generates four steps of three tokens, with a letter of its own per completion."""

    def __init__(self) -> None:
        self.tokenizer = scratch(characters=f"{ascii_letters}0123;").tokenizer()
        self.rows = 0

    def __call__(self, prompts: Any, prefixes: Any = None) -> list[list[int]]:
        written = []
        for start in prefixes or [[]] * len(prompts):
            text = "".join(f"{ascii_letters[self.rows]}{column};" for column in range(4))
            written.append([*self.tokenizer(text)["input_ids"], self.tokenizer.eos_token_id][len(start) :])
            self.rows += 1
        return written


def written(step: int = 0, **knobs: Any) -> list[str]:
    scribe = LetterPolicy()
    source = Tree(steps=Pattern(pattern=";"), **knobs)
    found = source(["a"] * 8 + ["b"] * 8, [*range(8)] * 2, scribe, scribe.tokenizer, 3, step)
    assert "mask" not in found
    rows: list[str] = scribe.tokenizer.batch_decode(found["completion_ids"], skip_special_tokens=True)
    return rows


def test_forks_keep_whole_steps():
    rows = written()
    for group in (rows[:8], rows[8:]):
        assert len({row[-3] for row in group}) == 8  # each ends in its own letter
        for number, row in enumerate(group[1:], 1):
            parent = group[number - 2 ** (number.bit_length() - 1)]
            kept = row.index(row[-3])  # up to its own first letter
            assert kept % 3 == 0
            assert row[:kept] == parent[:kept]
            own = parent.index(parent[-3])
            assert own < kept < 12 or (kept == own == 9)  # a last step has no end within: forked where it began


@pytest.mark.parametrize(("knobs", "deepest"), [({}, 3), ({"forks": 7}, 1), ({"trunks": 4}, 1), ({"trunks": 8}, 0)])
def test_depth(knobs: dict[str, int], deepest: int):
    """A completion has its own letter and those of its ancestors."""
    depths = [len({*row} & {*ascii_letters}) - 1 for step in range(8) for row in written(step, **knobs)]
    assert max(depths) == deepest
