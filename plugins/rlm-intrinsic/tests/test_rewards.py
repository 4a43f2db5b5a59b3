"""Votes against independent counts, with ties and missing answers; the random control; the contract of each reward."""

from __future__ import annotations

import random
from statistics import multimode
from types import SimpleNamespace

import pytest
from rlm_intrinsic import language_consistency, majority_vote, random_reward, vote_share
from rlm_testing import conformance

FOURS = ["<answer>4</answer>", "<answer>4.0</answer>"]
TEXTS = [*FOURS, "<answer>5</answer>", "6", "", "<answer>4</answer><answer>5</answer>"]
known = {"completions": TEXTS}

test_majority_laws = conformance("rlm_rewards", majority_vote, columns=known)
test_threshold_laws = conformance("rlm_rewards", majority_vote, knobs={"threshold": 0.6}, columns=known)
test_share_laws = conformance("rlm_rewards", vote_share, columns=known)
test_coin_laws = conformance("rlm_rewards", random_reward)
test_language_laws = conformance("rlm_rewards", language_consistency)


def random_answers(rows: int) -> list[str]:
    chance = random.Random(rows)
    return [chance.choice(["1", "2", "3", "4", ""]) for _ in range(rows)]


@pytest.mark.parametrize("rows", range(1, 30))
def test_label_is_the_unique_mode(rows: int) -> None:
    texts = random_answers(rows)
    modes = multimode(text for text in texts if text)
    wanted = [float(text == modes[0]) for text in texts] if len(modes) == 1 else [None] * rows
    assert majority_vote(["q"] * rows, texts) == wanted


@pytest.mark.parametrize("rows", range(1, 30))
def test_vote_share_is_the_probability_of_agreement(rows: int) -> None:
    texts = random_answers(rows)
    voters = [text for text in texts if text]
    wanted = [sum(text == other for other in voters) / len(voters) if text else 0.0 for text in texts]
    assert vote_share(["q"] * rows, texts) == pytest.approx(wanted)


def test_two_answers_count_as_no_vote() -> None:
    both = "<answer>1</answer><answer>2</answer>"
    assert majority_vote(["q"] * 4, [both, both, both, "<answer>2</answer>"]) == [0.0, 0.0, 0.0, 1.0]


def test_threshold_on_the_majority() -> None:
    texts, seen = ["1", "1", "2", "3", ""], {}
    assert majority_vote(["q"] * 5, texts, seen.__setitem__, threshold=0.51) == [None] * 5
    assert seen == {"majority_vote/agreement": 0.5, "majority_vote/labelled": 0.0}
    assert majority_vote(["q"] * 5, texts, threshold=0.5) == [1.0, 1.0, 0.0, 0.0, 0.0]  # of the votes that were cast


def test_random_reward_is_fair_and_changes_per_step() -> None:
    texts = [str(n) for n in range(4000)]
    first, again, later = (random_reward(["q"] * 4000, texts, SimpleNamespace(global_step=n)) for n in (3, 3, 4))
    assert first == again
    assert sum(first) / 4000 == pytest.approx(0.5, abs=0.03)  # four standard deviations
    assert sum(x == y for x, y in zip(first, later, strict=True)) / 4000 == pytest.approx(0.5, abs=0.03)
    assert sum(random_reward(["q"] * 4000, texts, probability=0.1)) / 4000 == pytest.approx(0.1, abs=0.02)
