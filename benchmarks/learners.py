"""Several learners that vote for one another: ``python benchmarks/learners.py``; `small_experiment.py` has the gate.

Each of 27 prompts has one right answer of five. A learner has a favorite wrong answer for nine of them. Three learners
are wrong independently of each other, or for the same prompts with answers of their own, or with the same answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from no_labels import by_votes
from rlm_intrinsic.co_learners import CoLearners
from small_auxiliary import AuxiliaryTable
from small_experiment import Arm, Experiment, main, on_grid
from small_policy import NEVER, Measure, Tokens, World, equation, train

from rlm_plugins.equation.equation import Equation
from rlm_plugins.registry.part import Part

RESULTS = Path(__file__).parent / "results"
CHOICES, LEARNERS, PROMPTS = 5, 3, 27
LIKELY, SECOND = 1.5, 0.8
"""Logits of the likeliest answer, and of answer 0, the right one, if that is wrong; other answers have 0."""
SAMPLES, BATCH, BUDGET, POINTS = 8, 9, 15_000, 30
"""Answers of a learner to a prompt; prompts of a batch; generated tokens, and points of a curve."""

WrongFor = Callable[[int, int], bool]
"""Prompt and learner → True if its likeliest answer is wrong."""
INDEPENDENT: WrongFor = lambda prompt, learner: prompt // 3**learner % 3 == 0  # noqa: E731
SAME: WrongFor = lambda prompt, learner: INDEPENDENT(prompt, 0)  # noqa: E731


class Letters:
    """Tokenizer of answers: a letter per token."""

    eos_token_id = CHOICES

    def batch_decode(self, rows: Sequence[Tokens], skip_special_tokens: bool) -> list[str]:
        """Return the letters of each answer."""
        return ["".join("abcde"[token] for token in row) for row in rows]


def start_of(learner: int, is_wrong: WrongFor, own_answer: bool) -> torch.Tensor:
    """Return the initial logits of a learner.

    Args:
        learner: Its number.
        is_wrong: The prompts for which its likeliest answer is wrong.
        own_answer: That answer is another one for each learner.
    """
    start = torch.zeros(PROMPTS, CHOICES + 1, dtype=torch.float64)
    start[:, CHOICES], start[:, 0] = NEVER, LIKELY
    for prompt in range(PROMPTS):
        if is_wrong(prompt, learner):
            start[prompt, 0], start[prompt, 1 + learner * own_answer] = SECOND, LIKELY
    return start


def accuracy(logits: torch.Tensor) -> float:
    """Return the probability of the right answer, the mean over prompts."""
    return logits.softmax(1)[:, 0].mean().item()


def together(starts: Sequence[torch.Tensor], rate: float) -> tuple[Equation, Sequence[AuxiliaryTable]]:
    """Return the equation with `co_learners`, and its peers.

    Args:
        starts: Initial logits of the peers.
        rate: Of the peers; 0: they vote and do not train.
    """
    peers = [AuxiliaryTable(start, rate) for start in starts]
    shaper = Part("rlm_shapers", "co_learners", "learners", CoLearners).bind({"peers": len(peers), "samples": SAMPLES})
    shaper.target._models = peers  # type: ignore[attr-defined]
    return replace(equation(advantage="group_relative"), shapers=[shaper]), peers


def experiment(scale: float = 1.0, budget: int = BUDGET) -> Experiment:
    """Compare three learners that vote together with one that votes for itself, and with labels.

    Args:
        scale: Factor of the rate.
        budget: Generated tokens of all learners together.
    """
    own, rate = start_of(0, INDEPENDENT, False), 0.05 * scale
    following = torch.arange(PROMPTS).unsqueeze(1).expand(*own.shape)
    unpaid = World(own, 1, CHOICES, range(PROMPTS), following, lambda prompt, completion: 0.0)
    labelled = replace(unpaid, reward=lambda prompt, completion: float(completion[0] == 0))
    votes = replace(equation(), advantage=Part("rlm_advantages", "votes", "learners", by_votes).bind({}))

    def run(world: World, parts: Equation, samples: int, seed: int, peers: Sequence[AuxiliaryTable] = ()) -> Any:
        def mean(logits: torch.Tensor) -> float:
            return fmean([accuracy(logits), *(accuracy(peer.table().detach()) for peer in peers)])

        size: dict[str, Any] = {"prompts": BATCH, "group_size": samples, "rate": rate, "budget": budget}
        size["fields"] = lambda logits, states, batch: {"tokenizer": Letters()}
        measures: dict[str, Measure] = {"accuracy": accuracy, "mean": mean}
        return on_grid(train(world, parts, measures, seed=seed, **size), budget, POINTS)

    def several(is_wrong: WrongFor, own_answer: bool, trains: bool, seed: int) -> Any:
        starts = [start_of(learner, is_wrong, own_answer) for learner in range(1, LEARNERS)]
        parts, peers = together(starts, rate * trains)
        return run(unpaid, parts, SAMPLES, seed, peers)

    arms = [
        Arm("one learner, its own vote", partial(run, unpaid, votes, LEARNERS * SAMPLES)),
        Arm("one learner, its own vote, 3 times the batches", partial(run, unpaid, votes, SAMPLES)),
        Arm("one learner, labels", partial(run, labelled, equation(advantage="group_relative"), LEARNERS * SAMPLES)),
        Arm("three learners, independent errors", partial(several, INDEPENDENT, True, True)),
        Arm("the same, two of them frozen", partial(several, INDEPENDENT, True, False)),
        Arm("three learners, same prompts wrong, other answers", partial(several, SAME, True, True)),
        Arm("three learners, same errors", partial(several, SAME, False, True)),
    ]
    names = {"accuracy": "accuracy of the first learner", "mean": "mean of all learners"}
    return Experiment(
        "Learners that vote", arms, names, "accuracy", 1, ["one learner, labels"], "accuracy", by_tokens=True
    )


EXPERIMENTS = {"learners": experiment}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
