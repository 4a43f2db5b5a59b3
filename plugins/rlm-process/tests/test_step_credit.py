"""Step advantages: by hand, and against the telescoped sum."""

from __future__ import annotations

import pytest
from rlm_process.state_values import step_advantages


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
