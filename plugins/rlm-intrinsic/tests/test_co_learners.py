"""Policies that learn together: the vote, the rewards, the loss of a peer with its gradient, and a run that resumes."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from rlm_intrinsic.co_learners import CoLearners, collective_votes
from rlm_testing.auxiliary_models import (
    RecordingLM,
    are_equal,
    check_adapter_is_required,
    tiny_recipe,
    train_and_resume,
)

RECIPE = Path(__file__).parents[3] / "recipes" / "survey" / "rlccf.yaml"
in_repository = pytest.mark.skipif(not RECIPE.exists(), reason="the recipe is a file of the repository")
PROMPTS = ["p", "p", "q", "q"]
OWN = [[5], [6], [7], [8]]
"""The policy's answers: 5 and 6 to p, 7 and 8 to q."""
PEERS = [{"p": [[5], [5, 5]], "q": [[7], [8]]}, {"p": [[6], [5]], "q": [[7], [8]]}]
"""Each peer's two answers; the second of the first peer to p is 55."""


class Tokenizer:
    eos_token_id = 9

    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool) -> list[str]:
        return ["".join(map(str, row)) for row in rows]


def part_with(models: list[RecordingLM], **knobs: Any) -> CoLearners:
    part = CoLearners(peers=len(models), samples=2, **knobs)
    part._models, part._sampled = models, [{} for _ in models]  # type: ignore[assignment]
    return part


def generator(models: list[RecordingLM]) -> Any:
    def generate(prompts: list[str]) -> list[list[int]]:
        (active,) = (number for number, model in enumerate(models) if model.is_active)
        return [PEERS[active][prompt][n % 2] for n, prompt in enumerate(prompts)]

    return generate


def test_vote_is_weighted_by_self_consistency() -> None:
    """Two votes of a certain model outweigh three of one that is split: 1 · 2 against 3/5 · 3 = 1.8."""
    certain, split = ["4", "4"], ["5", "5", "5", "6", "7"]
    assert collective_votes([certain, split]).label == "4"
    assert collective_votes([split, split, certain]).label == "5"
    assert collective_votes([certain, split]).consistency == pytest.approx((1 + 3 / 5) / 2)
    assert collective_votes([["4"], ["5"]]).label is None
    assert collective_votes([["4"], ["4", "4", "5"]]).unanimous
    assert not collective_votes([["4"], ["4", "5"]]).unanimous, "a tie has no favorite"
    assert collective_votes([[None], [None]]) == (None, 0.0, False)


def test_rewards_losses_and_gradients() -> None:
    """p: all SC are ½, so the label is 5 with 3 votes of 6. q: 7 and 8 have three votes each, no label."""
    logps = [-torch.rand(2, 2, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    models = [RecordingLM(logp, norm=2.0) for logp in logps]
    part, logged = part_with(models, weight=0.5, monitor="answer"), dict[str, float]()
    shaped = part(torch.tensor([1.0, 0.0, 0.0, 0.0]), PROMPTS, OWN, Tokenizer(), generator(models))
    assert shaped.tolist() == [1.5, 0.0, 0.0, 0.0]

    inputs = [{"answer": "5"}, {"answer": "5"}, {"answer": 8}, {"answer": 8}]
    prompt_ids = [[1], [1], [2], [2]]
    part.update(PROMPTS, inputs, prompt_ids, OWN, Tokenizer(), None, 0, logged.__setitem__)  # type: ignore[arg-type]
    assert {name.removeprefix("co_learners/"): x for name, x in logged.items()} == {
        "labelled": 0.5,
        "consistency": 0.5,
        "agreement": 0.0,
        "right": (1 + 1 + 1 + 1) / 8,
        "norm": 2.0,
    }
    for peer, (model, logp) in enumerate(zip(models, logps, strict=True)):
        answers = PEERS[peer]["p"]
        assert model.prompts == [[1], [1]], "q has no label"
        assert model.completions == answers
        rewards = [float(row == [5]) for row in answers]
        tokens, total, expected = sum(map(len, answers)), 0.0, torch.zeros(2, 2)
        for j, row in enumerate(answers):
            advantage = (rewards[j] - statistics.mean(rewards)) / (statistics.stdev(rewards) + 1e-4)
            for t in range(len(row)):
                total -= advantage * logp[j, t].item() / tokens
                expected[j, t] = -advantage / tokens
        assert model.value.item() == pytest.approx(total, rel=1e-5)
        torch.testing.assert_close(logp.grad, expected)


def test_a_prompt_is_answered_once_per_batch_and_anew_in_the_next() -> None:
    models = [RecordingLM(torch.zeros(2, 2)), RecordingLM(torch.zeros(2, 2))]
    part, calls = part_with(models), list[int]()

    def generate(prompts: list[str]) -> list[list[int]]:
        calls.append(len(prompts))
        return generator(models)(prompts)

    part(torch.zeros(2), PROMPTS[:2], OWN[:2], Tokenizer(), generate)
    part(torch.zeros(4), PROMPTS, OWN, Tokenizer(), generate)
    assert calls == [2, 2, 2, 2], "the second call adds q alone"
    part.update(PROMPTS, [{}] * 4, [[1]] * 4, OWN, Tokenizer(), None, 0, print)  # type: ignore[arg-type]
    part(torch.zeros(4), PROMPTS, OWN, Tokenizer(), generate)
    assert calls[4:] == [4, 4]


@in_repository
def test_peers_learn_in_a_run_and_resume_is_exact(tmp_path: Path) -> None:
    environment = {"name": "addition", "digits": 2, "train_rows": 64, "thinking": False}
    file = tiny_recipe(RECIPE, tmp_path, environment=environment, trainer={"max_completion_length": 1})
    run = train_and_resume(file, tmp_path / "run", "co_learners")
    assert b"co_learners" not in run.weights, "PEFT's file is the policy's alone"
    one, other = run.late["peers"]
    assert not any(map(are_equal, run.early["peers"], (one, other))), "each peer learns"
    assert not are_equal(one, other)
    assert all("co_learners/consistency" in json.dumps(line) for line in run.metrics)


@in_repository
def test_recipe_passes_check_and_requires_an_adapter() -> None:
    check_adapter_is_required(RECIPE)
