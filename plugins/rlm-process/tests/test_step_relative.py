"""`step_relative` against an oracle."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_process import step_relative
from rlm_process.step_boundaries import Every
from rlm_testing import conformance

test_laws = conformance("rlm_advantages", step_relative, knobs={"steps": {"every": 2}})
test_laws_of_each_alone = conformance(
    "rlm_advantages", step_relative, knobs={"steps": {"every": 2}, "alike": "number", "gamma": 0.0}
)

ROW = st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=0, max_size=6)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    rows=st.lists(ROW, min_size=1, max_size=5),
    size=st.integers(1, 3),
    alike=st.sampled_from(["all", "number"]),
    gamma=st.sampled_from([1.0, 0.5, 0.0]),
    scale=st.sampled_from(["group", "none"]),
)
def test_every_step_of_every_row(rows: Any, size: int, alike: Any, gamma: float, scale: str):
    width = max(1, *map(len, rows))
    mask = torch.tensor([[t < len(row) for t in range(width)] for row in rows])
    paid = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float64)
    group = [i % 2 for i in range(len(rows))]
    knobs: dict[str, Any] = {"steps": Every(every=size), "alike": alike, "gamma": gamma, "scale": scale}
    actual = step_relative(paid, torch.tensor(group), mask, rows, None, **knobs)
    steps = [[sum(row[a : a + size]) for a in range(0, len(row), size)] for row in rows]

    def relative(i: int, k: int) -> float:
        like = [
            x
            for j, other in enumerate(steps)
            for number, x in enumerate(other)
            if group[j] == group[i] and (alike == "all" or number == k)
        ]
        mean = sum(like) / len(like)
        std = (sum((x - mean) ** 2 for x in like) / max(1, len(like) - 1)) ** 0.5
        by = std + 1e-4 if scale == "group" else 1.0
        return (steps[i][k] - mean) / by if max(like) > min(like) else 0.0

    for i, row in enumerate(rows):
        for t in range(len(row)):
            first = t // size
            expected = sum(gamma ** (k - first) * relative(i, k) for k in range(first, len(steps[i])))
            torch.testing.assert_close(actual[i, t].item(), expected, atol=1e-9, rtol=1e-9)
        assert not actual[i, len(row) :].any()


def test_multi_turn_steps_exclude_observations():
    """Two turns of two tokens with an observation between them: two steps of two tokens, not three."""
    mask = torch.tensor([[True, True, False, True, True]] * 2)
    paid = torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]])
    rows, two = [[5, 6, 9, 7, 8]] * 2, Every(every=2)
    knobs: dict[str, Any] = {"steps": two, "alike": "number", "gamma": 0.0, "eps": 0.0}
    found = step_relative(paid, torch.tensor([0, 0]), mask, rows, None, torch.zeros(2, 5), **knobs)
    half = 0.5**0.5
    torch.testing.assert_close(found, half * torch.tensor([[1.0, 1.0, 0.0, -1.0, -1.0], [-1.0, -1.0, 0.0, 1.0, 1.0]]))
