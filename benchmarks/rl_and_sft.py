"""Experiment on RL and supervised fine-tuning: ``python benchmarks/rl_and_sft.py``; `small_experiment.py` has the gate.

A network of one hidden layer reads a rule and two digits. It writes the last digit of their sum in base 10 or base 9,
or the larger of the two. It may write a digit in one of two forms, and both are paid.
Training has 64 prompts in base 10.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from small_experiment import Arm, Experiment, main
from small_policy import Measure, Policy, Tokens, World, equation, in_order, train, without_baseline
from torch import nn

RESULTS = Path(__file__).parent / "results"
RULES: dict[str, Callable[[int, int], int]] = {
    "base 10": lambda a, b: (a + b) % 10,
    "base 9": lambda a, b: (a + b) % 9,
    "larger": max,
}
CASES = list(product(RULES, range(10), range(10)))
RIGHT = torch.tensor([RULES[rule](a, b) for rule, a, b in CASES])
OWN, OTHER = 0, 10
"""Offset of the tokens of a digit in the policy's own form, and in the other."""
HIDDEN, START_STEPS = 96, 300
SUMS_RIGHT, OTHER_FORM = 0.5, 0.05
"""Of the start's data: right sums, where the others are one too low; and digits in the other form."""


class Network(nn.Module):
    """A network whose call returns the table of logits (prompts, tokens)."""

    def __init__(self) -> None:
        super().__init__()
        inputs = torch.zeros(len(CASES), 23, dtype=torch.float64)
        for row, (rule, a, b) in enumerate(CASES):
            inputs[row, [list(RULES).index(rule), 3 + a, 13 + b]] = 1.0
        self.register_buffer("inputs", inputs)
        generator = torch.Generator().manual_seed(0)
        self.hidden = nn.Parameter(torch.randn(23, HIDDEN, generator=generator, dtype=torch.float64) * 0.7)
        self.output = nn.Parameter(torch.randn(HIDDEN, 20, generator=generator, dtype=torch.float64) * 0.1)

    def forward(self) -> torch.Tensor:
        """Return the logits of every prompt."""
        return torch.relu(self.inputs @ self.hidden) @ self.output


def forms(digits: torch.Tensor, other: float) -> torch.Tensor:
    """Return the distribution (prompts, tokens) of digits that are written in the other form with chance `other`."""
    table = torch.zeros(len(digits), 20, dtype=torch.float64)
    table[range(len(digits)), digits] = 1 - other
    table[range(len(digits)), digits + OTHER] = other
    return table


@cache
def start() -> dict[str, torch.Tensor]:
    """Return the weights of the start: trained on all rules, with half of the sums of both bases one too low."""
    network = Network()
    is_sum = torch.tensor([rule != "larger" for rule, _, _ in CASES]).double().unsqueeze(1)
    low = torch.where(RIGHT > 0, RIGHT - 1, 9)
    noisy = SUMS_RIGHT * forms(RIGHT, OTHER_FORM) + (1 - SUMS_RIGHT) * forms(low, OTHER_FORM)
    target = is_sum * noisy + (1 - is_sum) * forms(RIGHT, OTHER_FORM)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(START_STEPS):
        optimizer.zero_grad()
        (-(target * network().log_softmax(1)).sum(1).mean()).backward()
        optimizer.step()
    return network.state_dict()


SHUFFLED = torch.randperm(100, generator=torch.Generator().manual_seed(1)).tolist()
TRAINED, HELD_OUT = SHUFFLED[:64], SHUFFLED[64:]


def accuracy(rows: Sequence[int]) -> Measure:
    """Return the measure of right digits in either form."""

    def measure(logits: torch.Tensor) -> float:
        table = logits.softmax(1)[rows]
        right = RIGHT[rows]
        return (table.gather(1, right[:, None]) + table.gather(1, right[:, None] + OTHER)).mean().item()

    return measure


def experiment(scale: float = 1.0, steps: int = 50) -> Experiment:
    """Compare GRPO with demonstrations in the policy's own form and in the other one.

    Args:
        scale: Factor of the rate.
        steps: Batches of 64 completions or demonstrations: epochs of the 64 prompts.
    """
    network = Network()
    network.load_state_dict(start())
    before = network().detach()

    def divergence(logits: torch.Tensor) -> float:
        now, then = logits[200:].log_softmax(1), before[200:].log_softmax(1)
        return (now.exp() * (now - then)).sum(1).mean().item()

    measures: dict[str, Measure] = {
        "trained": accuracy(TRAINED),
        "held_out": accuracy(HELD_OUT),
        "rule": accuracy(range(100, 200)),
        "old": accuracy(range(200, 300)),
        "kl": divergence,
    }

    def reward(prompt: int, completion: Tokens) -> float:
        return float(completion[0] % 10 == RIGHT[TRAINED[prompt]])

    world = World(before, 1, -1, TRAINED, in_order(*before.shape), reward)

    def demonstrations(form: int) -> Callable[..., dict[str, Any]]:
        def source(prompts: Sequence[int], trainer: Policy) -> dict[str, Any]:
            trainer.num_tokens += len(prompts)
            return {"completion_ids": [[int(RIGHT[TRAINED[prompt]]) + form] for prompt in prompts]}

        return source

    def run(stages: Sequence[int | None], seed: int) -> dict[str, list[float]]:
        model, curves = Network(), dict[str, list[float]]()
        model.load_state_dict(start())
        for form in stages:
            own: dict[str, Any] = {"advantage": "group_relative", "importance": "token", "policy_loss": "clip"}
            parts = equation(**own) if form is None else without_baseline()
            source = None if form is None else demonstrations(form)
            size = {"steps": steps // len(stages), "prompts": 8, "rate": 0.006 * scale}
            task = World(model().detach(), 1, -1, TRAINED, world.following, reward)
            part = train(task, parts, measures, seed=seed, source=source, model=model, **size)
            curves = {name: [*curves.get(name, values[:1])[:], *values[1:]] for name, values in part.items()}
        return curves

    arms = [
        Arm("RL (GRPO)", partial(run, [None])),
        Arm("SFT, own form", partial(run, [OWN])),
        Arm("SFT, other form", partial(run, [OTHER])),
        Arm("SFT, other form, then RL", partial(run, [OTHER, None])),
    ]
    names = {
        "old": "old task",
        "trained": "64 prompts",
        "held_out": "other prompts, base 10",
        "rule": "changed rule, base 9",
        "kl": "KL to the start, old task",
    }
    return Experiment("RL against SFT", arms, names, "old", -1, ["SFT, other form"], task="trained", drawn="old")


EXPERIMENTS = {"rl_and_sft": experiment}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
