"""pass@k and majority@k against enumeration of all draws; intervals against published values and by their coverage."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from rlm_plugins.evaluation.scores import (
    evaluations_without_improvement,
    interval,
    majority_at,
    paired_interval,
    pass_at,
    share_interval,
)

CASES = [
    ("aabbc", [1.0, 1.0, 0.0, 0.0, 0.0]),
    ("abcdef", [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ("aaaabbb", [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]),
    ("aabbccd", [0.3, 0.5, 0.0, 0.0, 1.0, 1.0, 0.2]),
    ("aaaa", [1.0, 1.0, 1.0, 1.0]),
]


def votes_of(draw: tuple[tuple[str, float], ...], scores: dict[str, float]) -> float:
    counts = Counter(answer for answer, _ in draw)
    first = [answer for answer, count in counts.items() if count == max(counts.values())]
    return sum(scores[answer] for answer in first) / len(first)


@pytest.mark.parametrize(("answers", "scores"), CASES)
def test_estimators_are_means_over_all_draws(answers: str, scores: list[float]) -> None:
    rows = list(zip(answers, scores, strict=True))
    own = {a: sum(s for b, s in rows if a == b) / answers.count(a) for a in answers}
    for k in range(1, len(rows) + 1):
        draws = list(itertools.combinations(rows, k))
        best = sum(max(score for _, score in draw) for draw in draws) / len(draws)
        voted = sum(votes_of(draw, own) for draw in draws) / len(draws)
        assert pass_at(scores, k) == pytest.approx(best)
        assert majority_at(answers, scores, k) == pytest.approx(voted)


def test_share_interval_of_zeros_and_ones_is_the_one_of_the_greedy_score() -> None:
    for successes in (0, 3, 40):
        values = [1.0] * successes + [0.0] * (40 - successes)
        assert share_interval(values) == pytest.approx(interval(values))


@pytest.mark.parametrize("prompts", [20, 200])
def test_intervals_cover_the_mean_in_95_percent_of_experiments(prompts: int) -> None:
    draw, trials, share, paired = random.Random(2), 1500, 0, 0
    for _ in range(trials):
        rates = [draw.betavariate(0.5, 1.0) for _ in range(prompts)]  # mean 1/3
        first = [sum(draw.random() < p for _ in range(4)) / 4 for p in rates]
        second = [sum(draw.random() < min(p + 0.1 * (p < 0.9), 1) for _ in range(4)) / 4 for p in rates]
        low, high = share_interval(first)
        share += low <= 1 / 3 <= high
        expected = 0.1 * (0.9**0.5)  # the beta(1/2, 1) distribution is √x
        low, high = paired_interval([b - a for a, b in zip(first, second, strict=True)])
        paired += low <= expected <= high
    assert 0.93 <= share / trials <= 0.985
    assert 0.93 <= paired / trials <= 1.0


def test_interval_of_few_different_prompts_includes_zero() -> None:
    assert paired_interval([1.0] * 4 + [0.0] * 96)[0] < 0 < paired_interval([1.0] * 8 + [0.0] * 92)[0]
    low, high = paired_interval([0.0] * 50)
    assert low == -high < 0


def test_early_stop_counts_evaluations_since_the_last_certain_improvement() -> None:
    def scores(solved: int) -> list[float]:
        return [1.0] * solved + [0.0] * (50 - solved)

    count = evaluations_without_improvement
    assert count([scores(5)]) == 0
    assert count([scores(5), scores(6), scores(6)]) == 2
    assert count([scores(5), scores(25)]) == 0
    assert count([scores(5), scores(25), scores(24), scores(3)]) == 2
    rise = [scores(n) for n in range(5, 40, 3)]
    assert max(count(rise[:number]) for number in range(1, len(rise))) == 1, "a slow rise is no standstill"
