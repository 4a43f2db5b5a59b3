"""Surrogate rewards: contract, corners of the length curve, and the random control."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rlm_intrinsic import format_and_length, random_reward
from rlm_testing import conformance

RIGHT = "<answer>4</answer>"
test_form_laws = conformance(
    "rlm_rewards", format_and_length, knobs={"length": 20}, columns={"completions": [RIGHT, "4"]}
)
test_coin_laws = conformance("rlm_rewards", random_reward)


@pytest.mark.parametrize(
    ("tokens", "curve"), [(0, 0.0), (2, 1 - 0.6**2), (5, 1.0), (10, 1 - 2 / 9), (15, 1 - 8 / 9), (20, -1.0), (99, -1.0)]
)
def test_length_score_peaks_at_best(tokens: int, curve: float) -> None:
    ids = [list(range(tokens))] * 2
    assert format_and_length([RIGHT, "4"], ids, length=20, best=0.25) == pytest.approx([1 + curve, min(0.0, curve)])


def test_random_reward_is_fair_and_changes_per_step() -> None:
    texts = [str(n) for n in range(4000)]
    first, again, later = (random_reward(["q"] * 4000, texts, SimpleNamespace(global_step=n)) for n in (3, 3, 4))
    assert first == again
    assert sum(first) / 4000 == pytest.approx(0.5, abs=0.03)  # four standard deviations
    assert sum(x == y for x, y in zip(first, later, strict=True)) / 4000 == pytest.approx(0.5, abs=0.03)
    assert sum(random_reward(["q"] * 4000, texts, probability=0.1)) / 4000 == pytest.approx(0.1, abs=0.02)
