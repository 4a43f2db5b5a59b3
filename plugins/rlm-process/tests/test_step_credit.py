"""Step advantages: by hand, and against the telescoped sum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlm_process.vine import step_advantages

VALUES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=5)


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


@given(values=VALUES, last=st.sampled_from([0.0, 1.0]), data=st.data())
def test_advantages_telescope_to_return_minus_first_value(values: list[float], last: float, data: st.DataObject):
    rewards = data.draw(st.lists(st.sampled_from([0.0, 0.5]), min_size=len(values), max_size=len(values)))
    rewards[-1] += last
    assert sum(step_advantages(rewards, values)) == pytest.approx(sum(rewards) - values[0])
