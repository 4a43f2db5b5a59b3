"""Held-out scores: greedy, reproducible, without changes to the model; their intervals, pass@k and majority@k."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch

from rlm_plugins.evaluation import held_out
from rlm_plugins.evaluation.held_out import evaluate, evaluate_sampled
from rlm_plugins.evaluation.scores import (
    evaluations_without_improvement,
    interval,
    majority_at,
    paired_interval,
    pass_at,
    share_interval,
)
from rlm_plugins.registry.part import Part
from rlm_plugins.specs import EnvironmentSpec, ModelSpec
from rlm_plugins.stage import Evaluation, Reward, Stage


def reward(function: Any, label: str = "it") -> Reward:
    return Reward(label, Part("rlm_rewards", label, "test", function).bind({}))


def long(completions: list[str], answer: list[str]) -> list[float]:
    """Return 1 for a long completion; the reward names a column, so that columns are tested too."""
    return [float(len(text) + len(a) > 3) for text, a in zip(completions, answer, strict=True)]


def some(completions: list[str], answer: list[str]) -> list[float | None]:
    """Return a reward that applies only to answers of one digit."""
    return [2.0 if len(a) == 1 else None for a in answer]


async def slow(completions: list[str]) -> list[float]:
    """Return an asynchronous reward."""
    return [0.5] * len(completions)


REWARDS = {"long": long, "some": some, "slow": slow}


def judged(functions: dict[str, Any] = REWARDS, model: Any = None, rows: Any = None, **changes: Any) -> Any:
    rewards = [reward(function, label) for label, function in functions.items()]
    settings = {"metric": next(iter(functions)), "batch_size": 5, "max_new_tokens": 6, **changes}
    rows = list(tiny.problems(12)) if rows is None else rows
    return evaluate(model or tiny.model(), tiny.tokenizer(), rows, rewards, **settings)


def test_report() -> None:
    report = judged()
    assert report.rows == len(report.samples) == 12
    assert report.score == report.rewards["long"] == sum(s["rewards"]["long"] for s in report.samples) / 12
    assert report.rewards["slow"] == 0.5
    scores = [s["rewards"]["some"] for s in report.samples]
    assert None in scores
    assert report.rewards["some"] == 2.0, "a mean is over the rows a reward applies to"
    assert report.low <= report.score <= report.high
    assert report.samples[0]["prompt"] == "0+3="


def test_progress_is_told_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    judged(log_line=lines.append)
    assert lines == [], "a short evaluation says nothing"
    monkeypatch.setattr(held_out, "PROGRESS_SECONDS", 0.0)
    judged(log_line=lines.append)
    assert [line.rpartition(" ━")[0] for line in lines] == ["evaluated 5/12", "evaluated 10/12"]
    assert all(line.endswith(" s left") for line in lines)


def test_a_reward_sees_no_column_that_means_something_else() -> None:
    """As in training, `completion` is the generated text, and demonstrations are left out."""
    seen: list[set[str]] = []

    def curious(completions: list[str], **others: Any) -> list[float]:
        seen.append({*others})
        return [0.0] * len(completions)

    rows = [{**row, "completion": "no", "demonstration": "no"} for row in tiny.problems(2)]
    judged({"curious": curious}, rows=rows)
    (names,) = seen
    assert {"prompts", "completion_ids", "answer"} <= names
    assert not names & {"prompt", "completion", "demonstration"}


def test_a_percentage_is_a_share_of_something() -> None:
    assert judged(metric="long").text_of(0.305) == "30.5%"
    assert judged(metric="some").text_of(1.125) == "1.12"


def test_batches_of_any_size_give_the_same_answers() -> None:
    answers = [[s["completion"] for s in judged(batch_size=size).samples] for size in (1, 5, 12)]
    assert answers[0] == answers[1] == answers[2]


def test_neither_mode_nor_random_numbers_are_touched() -> None:
    model = tiny.model().train()
    state = torch.random.get_rng_state()
    judged(model=model)
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_metric_that_never_applies_is_no_number() -> None:
    def never(completions: list[str]) -> list[None]:
        return [None] * len(completions)

    report = judged({"never": never})
    assert math.isnan(report.score)
    assert math.isnan(report.low)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_wilson_against_published_values(successes: int, trials: int, low: float, high: float) -> None:
    found = interval([1.0] * successes + [0.0] * (trials - successes))
    assert found == pytest.approx((low, high), abs=5e-5)


def test_evaluation_leaves_the_state_of_a_reward_unchanged() -> None:
    class Counting:
        """Stateful reward: the number of completions so far."""

        def __init__(self) -> None:
            self.seen = 0

        def __call__(self, completions: list[str]) -> list[float]:
            self.seen += len(completions)
            return [float(self.seen)] * len(completions)

        def state_dict(self) -> dict[str, int]:
            return {"seen": self.seen}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.seen = state["seen"]

    counting = reward(Counting, "counting")
    options = {"metric": "counting", "batch_size": 5, "max_new_tokens": 6}
    report = evaluate(tiny.model(), tiny.tokenizer(), list(tiny.problems(12)), [counting], **options)
    assert report.samples[-1]["rewards"]["counting"] == 12
    assert vars(counting.part.target) == {"seen": 0}


def stage_of(metric: Reward, evaluation: Evaluation) -> Stage:
    source = ModelSpec(tiny.model().config, tiny.tokenizer, tiny.model)
    stage = Stage("x", {}, None, {"max_completion_length": 6}, EnvironmentSpec(train=()), source)
    return replace(stage, rewards=[metric], evaluation=evaluation)


def test_sampled_completions_give_mean_and_pass_at_k() -> None:
    """Both are computed by definition from the completions of the report."""

    def parity(completions: list[str]) -> list[float]:
        return [float(len(text) % 3 == 1) for text in completions]

    examples = list(tiny.problems(5))
    stage = stage_of(reward(parity, "parity"), Evaluation(metric="parity"))
    state = torch.random.get_rng_state()
    report = evaluate_sampled(stage, examples, tiny.model(), tiny.tokenizer(), 4)
    assert report is not None
    assert torch.equal(torch.random.get_rng_state(), state)
    scores: dict[str, list[float]] = {}
    for sample in report.samples:
        scores.setdefault(sample["prompt"], []).append(float(len(sample["completion"]) % 3 == 1))
    assert [len(own) for own in scores.values()] == [4] * 5
    mean, best = report.scores.estimate("mean")[0], report.scores.estimate("pass", 4)[0]
    assert mean == pytest.approx(sum(map(sum, scores.values())) / 20)
    assert best == pytest.approx(sum(any(own) for own in scores.values()) / 5)
    assert 0 < mean < best
    assert len({sample["completion"] for sample in report.samples}) > 5, "sampled, not greedy"
    again = evaluate_sampled(stage, examples, tiny.model(), tiny.tokenizer(), 4)
    assert again == report
    figures = report.figures()
    assert (figures["held_out/mean_at_k"], figures["held_out/pass_at_k"], figures["held_out/k"]) == (mean, best, 4)
    assert report.lines()[0].startswith(f"mean@4       {mean:.1%} [")


def test_temperature_of_the_samples() -> None:
    """Near 0 the samples are the greedy completions."""
    stage = stage_of(reward(long, "long"), Evaluation(metric="long", temperature=1e-4))
    report = evaluate_sampled(stage, list(tiny.problems(3)), tiny.model(), tiny.tokenizer(), 2)
    assert report is not None
    greedy = [sample["completion"] for sample in judged().samples[:3]]
    assert [sample["completion"] for sample in report.samples] == [text for text in greedy for _ in range(2)]


# ---- estimators against enumeration of all draws, and intervals by their coverage

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
