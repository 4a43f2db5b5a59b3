"""Effect of each reward on a policy over five answers under the group-relative gradient."""

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
    """Return the probabilities after gradient ascent on r − mean r, one sampled group per step."""
    generator = torch.Generator().manual_seed(seed)
    logits = START.log().clone()
    for step in range(STEPS):
        p = logits.softmax(0)
        random_answers = torch.multinomial(p, GROUP, replacement=True, generator=generator)
        scores = score(["q"] * GROUP, [ANSWERS[i] for i in random_answers.tolist()], step + STEPS * seed)
        rewards = torch.tensor([0.0 if x is None else x for x in scores])
        advantages = rewards - rewards.mean()
        logits += 0.5 * ((torch.eye(5)[random_answers] - p) * advantages.unsqueeze(1)).mean(0)
    return logits.softmax(0)


def mean_of_runs(score: Score) -> torch.Tensor:
    return torch.stack([trained(score, seed=seed) for seed in range(10)]).mean(0)


def test_votes_converge_to_the_most_likely_answer() -> None:
    for reward in (majority_vote, vote_share):
        after = mean_of_runs(lambda prompt, texts, _, reward=reward: reward(prompt, texts))
        assert after.argmax() == START.argmax()
        assert after[0] > START[0] + 0.2
        entropy = -(after * after.log()).sum()
        assert entropy < -(START * START.log()).sum()


def test_random_reward_has_no_drift() -> None:
    """Equal answers of a group share a draw that changes per step: a random walk without drift."""
    after = mean_of_runs(lambda prompt, texts, step: random_reward(prompt, texts, SimpleNamespace(global_step=step)))
    assert (after - START).abs().max() < 0.12
