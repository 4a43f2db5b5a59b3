"""The toy summarization task: its preferences follow the quality of a summary, with noise."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from rlm_testing import conformance
from rlm_worlds.gist import SummaryWriter, gist, gist_environment, summary_quality

test_environment = conformance("rlm_environments", gist_environment, knobs={"train_rows": 100, "test_rows": 20})
test_reward = conformance("rlm_rewards", gist)


def test_simulated_preferences_are_noisy() -> None:
    environment_spec = gist_environment(train_rows=2000, test_rows=1, noise=0.1)
    questions = [row["prompt"][0]["content"] for row in environment_spec.train]
    chosen = gist(questions, [row["chosen"] for row in environment_spec.train])
    rejected = gist(questions, [row["rejected"] for row in environment_spec.train])
    apart = [a - b for a, b in zip(chosen, rejected, strict=True) if abs(a - b) > 1e-9]
    clear = [x > 0 for x in apart if abs(x) > 0.4]
    close = [x > 0 for x in apart if abs(x) < 0.11]
    assert sum(clear) / len(clear) > 0.97
    assert 0.55 < sum(close) / len(close) < 0.8  # σ(1) = 0.73 at a difference of one `noise`


def test_ranked_gist_has_the_pairs_of_each_ranking() -> None:
    rows: Any = gist_environment(train_rows=12, test_rows=1, ranked=4).train
    for start in (0, 6):
        pairs = [(row["chosen"], row["rejected"]) for row in rows[start : start + 6]]
        best = pairs[0][0]
        assert [better for better, _ in pairs[:3]] == [best] * 3
        assert len({row["prompt"][0]["content"] for row in rows[start : start + 6]}) == 1


def test_two_of_a_ranking_are_in_the_order_of_a_comparison() -> None:
    """Plackett–Luce: P(a before b) = σ((quality(a) − quality(b)) / noise), for any other items."""
    writer, text = SummaryWriter(4, 0.15, 0.2, random.Random(0)), "7772"
    options = ["777", "722", "2222"]
    first = sum(
        order.index("777") < order.index("722") for order in (writer.ranking(text, options) for _ in range(4000))
    )
    difference = (summary_quality(text, "777", 0.15) - summary_quality(text, "722", 0.15)) / 0.2
    assert first / 4000 == pytest.approx(1 / (1 + math.exp(-difference)), abs=0.03)
