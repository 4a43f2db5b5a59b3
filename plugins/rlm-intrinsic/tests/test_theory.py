"""What each reward does to a policy over five answers, by the gradient of the group-relative estimator alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import torch
from rlm_intrinsic import majority_vote, random_reward, vote_share

ANSWERS = ["1", "2", "3", "4", "5"]
START = torch.tensor([0.36, 0.24, 0.2, 0.12, 0.08])
GROUP, STEPS = 16, 150
Score = Callable[[list[str], list[str], int], list[float | None] | list[float]]


def trained(score: Score, *, seed: int) -> torch.Tensor:
    """Probabilities after some steps of ascent on r − mean r, each on one group drawn from the policy."""
    generator = torch.Generator().manual_seed(seed)
    logits = START.log().clone()
    for step in range(STEPS):
        p = logits.softmax(0)
        drawn = torch.multinomial(p, GROUP, replacement=True, generator=generator)
        scores = score(["q"] * GROUP, [ANSWERS[i] for i in drawn.tolist()], step + STEPS * seed)
        rewards = torch.tensor([0.0 if x is None else x for x in scores])
        advantages = rewards - rewards.mean()
        logits += 0.5 * ((torch.eye(5)[drawn] - p) * advantages.unsqueeze(1)).mean(0)
    return logits.softmax(0)


def mean_of_runs(score: Score) -> torch.Tensor:
    return torch.stack([trained(score, seed=seed) for seed in range(10)]).mean(0)


def test_votes_make_the_likeliest_answer_certain() -> None:
    for reward in (majority_vote, vote_share):
        after = mean_of_runs(lambda asked, texts, _, reward=reward: reward(asked, texts))
        assert after.argmax() == START.argmax()
        assert after[0] > START[0] + 0.2
        entropy = -(after * after.log()).sum()
        assert entropy < -(START * START.log()).sum()


def test_a_coin_moves_nothing_on_average() -> None:
    """Equal answers of a group share a coin, and it is thrown anew at every step: a walk, not a drift."""
    after = mean_of_runs(lambda asked, texts, step: random_reward(asked, texts, SimpleNamespace(global_step=step)))
    assert (after - START).abs().max() < 0.12
