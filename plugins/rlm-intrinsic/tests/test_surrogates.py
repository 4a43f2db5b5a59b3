"""The random control: contract, probability, and a new draw per step; the contract of consistent language."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rlm_intrinsic import language_consistency, random_reward
from rlm_testing import conformance

test_coin_laws = conformance("rlm_rewards", random_reward)
test_language_laws = conformance("rlm_rewards", language_consistency)


def test_random_reward_is_fair_and_changes_per_step() -> None:
    texts = [str(n) for n in range(4000)]
    first, again, later = (random_reward(["q"] * 4000, texts, SimpleNamespace(global_step=n)) for n in (3, 3, 4))
    assert first == again
    assert sum(first) / 4000 == pytest.approx(0.5, abs=0.03)  # four standard deviations
    assert sum(x == y for x, y in zip(first, later, strict=True)) / 4000 == pytest.approx(0.5, abs=0.03)
    assert sum(random_reward(["q"] * 4000, texts, probability=0.1)) / 4000 == pytest.approx(0.1, abs=0.02)
