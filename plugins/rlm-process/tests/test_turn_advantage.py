"""Turns: numbering by the mask, returns, and comparable turns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_process.advantages import turn_relative

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
