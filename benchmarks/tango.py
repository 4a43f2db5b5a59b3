"""A verifier that is trained beside the policy: ``python benchmarks/tango.py``; `small_experiment.py` has the gate.

An answer is five tokens of three choices, all of which must be right. The verifier reads prompt and answer, and weighs
each token; the verdict is one token. At the start it takes one wrong token of each prompt for a right one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rlm_judge.trained_verifier import TrainedVerifier
from small_auxiliary import AuxiliaryTable
from small_experiment import Arm, Experiment, areas, main, on_grid
from small_policy import NEVER, Measure, Tokens, World, equation, in_order, train

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.registry.part import Part

RESULTS = Path(__file__).parent / "results"
PROMPTS, STEPS, CHOICES = 8, 5, 3
NO, YES, END = CHOICES, CHOICES + 1, CHOICES + 2
LETTERS = ["a", "b", "c", "0", "1", ""]
"""Token → text: the choices, of which `a` is right, the verdicts, and the end."""
SKILLS = (0.9, 0.35)
"""At the start, the chance of each right token of an answer, for every other prompt."""
EVIDENCE, THRESHOLD = 1.2, -4.0
"""Of the initial verifier: what a right token adds to the logit of acceptance, and a wrong one subtracts; the bias."""
ANSWERS = torch.tensor(list(product(range(CHOICES), repeat=STEPS)))
ROWS = PROMPTS * STEPS
"""Rows of the policy; a row per question to the verifier follows, and a last one that ends a verdict."""
BUDGET, POINTS, RATE = 40_000, 30, 0.05
SHARE = 0.62
"""Share of the tokens that are answers where the verifier adds verdicts to the outcome, on seeds 0 and 1."""


class Verifier(torch.nn.Module):
    """Table of logits in which a question accepts by a weight per token of its answer."""

    def __init__(self) -> None:
        super().__init__()
        weights = torch.full((PROMPTS, STEPS, CHOICES), -EVIDENCE, dtype=torch.float64)
        weights[:, :, 0] = EVIDENCE
        for prompt in range(PROMPTS):
            weights[prompt, prompt % STEPS, 1] = EVIDENCE  # the wrong token that it takes for a right one
        self.weights = torch.nn.Parameter(weights)
        self.bias = torch.nn.Parameter(torch.tensor(THRESHOLD, dtype=torch.float64))

    def accepts(self) -> torch.Tensor:
        """Return the logit of acceptance of each answer (prompts, answers)."""
        return self.bias + self.weights[:, torch.arange(STEPS), ANSWERS].sum(2)

    def forward(self) -> torch.Tensor:
        """Return the logits of all states."""
        verdicts = torch.full((PROMPTS * len(ANSWERS), END + 1), NEVER, dtype=torch.float64)
        verdicts[:, NO] = 0.0
        verdicts = torch.cat([verdicts[:, :YES], self.accepts().view(-1, 1), verdicts[:, END:]], 1)
        policy = start_rows()
        return torch.cat([policy[:ROWS], verdicts, policy[-1:]])


class Texts:
    """Tokenizer of answers, verdicts and questions; the token of a question is its number."""

    eos_token_id = END
    all_special_tokens = ()

    def __init__(self) -> None:
        self.added_tokens_decoder: dict[int, Any] = {}

    def batch_decode(self, rows: Sequence[Tokens], skip_special_tokens: bool) -> list[str]:
        """Return the letters of each row."""
        return ["".join(LETTERS[token] for token in row) for row in rows]

    def apply_chat_template(self, messages: Sequence[dict[str, str]], **_: Any) -> dict[str, Tokens]:
        """Return the number of the question, which is the prompt of its verdict."""
        task, answer = messages[0]["content"].split()
        index = 0
        for letter in answer:
            index = CHOICES * index + LETTERS.index(letter)
        return {"input_ids": [PROMPTS + len(ANSWERS) * int(task) + index]}


TEXTS = Texts()


def start_rows() -> torch.Tensor:
    """Return the initial logits of the policy, and rows for the verifier's states."""
    start = torch.full((ROWS + PROMPTS * len(ANSWERS) + 1, END + 1), NEVER, dtype=torch.float64)
    start[:ROWS, :CHOICES] = 0.0
    for row in range(ROWS):
        skill = SKILLS[row // STEPS % 2]
        start[row, 0] = math.log(skill / (1 - skill) * (CHOICES - 1))
    start[ROWS:, NO] = 0.0
    start[-1, NO], start[-1, END] = NEVER, 0.0
    return start


def right(prompt: int, completion: Tokens) -> float:
    """Return 1 for a right answer."""
    return float(prompt < PROMPTS and not any(completion))


def world() -> World:
    """Return the task, whose later prompts are the questions to the verifier."""
    start = start_rows()
    following = in_order(*start.shape).clone()
    following[ROWS:] = len(start) - 1
    first = [*range(0, ROWS, STEPS), *range(ROWS, len(start) - 1)]
    return World(start, STEPS, END, first, following, right, asked=PROMPTS)


def chances(logits: torch.Tensor) -> torch.Tensor:
    """Return the probability of each answer (prompts, answers)."""
    table = logits[:ROWS, :CHOICES].softmax(1).view(PROMPTS, STEPS, CHOICES)
    return table[:, torch.arange(STEPS), ANSWERS].prod(2)


def measures(verifier: Verifier) -> dict[str, Measure]:
    """Return accuracy, and over the policy's answers what the verifier accepts and how often it is right."""

    def accepted(logits: torch.Tensor) -> float:
        return (chances(logits) * verifier.accepts().sigmoid()).sum(1).mean().item()

    def correct(logits: torch.Tensor) -> float:
        accepts, p = verifier.accepts().sigmoid(), chances(logits)
        return (p[:, 0] * accepts[:, 0] + (p * (1 - accepts))[:, 1:].sum(1)).mean().item()

    def accuracy(logits: torch.Tensor) -> float:
        return chances(logits)[:, 0].mean().item()

    return {"accuracy": accuracy, "accepted": accepted, "correct": correct}


def experiment(scale: float = 1.0, budget: int = BUDGET) -> Experiment:
    """Compare the outcome as reward with the verdicts of a verifier, trained beside the policy or frozen.

    Args:
        scale: Factor of the rates.
        budget: Generated tokens of answers and verdicts.
    """
    task, rate = world(), RATE * scale

    def run(weight: float, outcome: float, trains: bool, seed: int, share: float = 1.0) -> dict[str, list[float]]:
        verifier, parts = Verifier(), equation(advantage="group_relative")
        if weight:
            parts = with_verifier(parts, AuxiliaryTable(verifier, rate * trains), weight)

        def fields(logits: torch.Tensor, states: torch.Tensor, batch: Batch) -> dict[str, Any]:
            generate = batch.generate
            return {
                "prompts": [str(prompt) for prompt in batch.prompts],
                "rewards": batch.named_rewards["accuracy"] * outcome,
                "tokenizer": TEXTS,
                "generate": lambda asked: generate([TEXTS.apply_chat_template(m)["input_ids"][0] for m in asked]),
            }

        total = int(budget * share)
        size: dict[str, Any] = {"prompts": 4, "group_size": 8, "rate": rate, "budget": total}
        curves = train(task, parts, measures(verifier), seed=seed, fields=fields, **size)
        return areas(on_grid(curves, total, POINTS), "accuracy")

    arms = [
        Arm("outcome", partial(run, 0.0, 1.0, False)),
        Arm("outcome, as many answers as with verdicts", partial(run, 0.0, 1.0, False, share=SHARE)),
        Arm("outcome + ½ verdicts, verifier trained", partial(run, 0.5, 1.0, True)),
        Arm("outcome + ½ verdicts, verifier frozen", partial(run, 0.5, 1.0, False)),
        Arm("verdicts alone, verifier trained", partial(run, 1.0, 0.0, True)),
        Arm("verdicts alone, verifier frozen", partial(run, 1.0, 0.0, False)),
    ]
    names = {
        "area": "mean accuracy over tokens",
        "accuracy": "accuracy at the end",
        "accepted": "answers that the verifier accepts",
        "correct": "verdicts that are right",
    }
    title = "A verifier beside the policy"
    return Experiment(title, arms, names, "area", 1, [], "accuracy", drawn="accuracy", by_tokens=True)


def with_verifier(parts: Equation, table: AuxiliaryTable, weight: float) -> Equation:
    """Return the equation with `trained_verifier`, as in its recipe."""
    knobs = {"weight": weight, "template": "{task} {answer}", "accept": "1", "reject": "0"}
    shaper = Part("rlm_shapers", "trained_verifier", "tango", TrainedVerifier).bind(knobs)
    shaper.target._models = [table]  # type: ignore[attr-defined]
    return replace(parts, shapers=[shaper])


EXPERIMENTS = {"tango": experiment}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
