"""Rewards of the trajectory, its turns, steps and tokens on one world: ``python benchmarks/granularity.py``.

A completion is 48 tokens: four turns of three steps of four tokens. All of them must be right. The arms differ in
the segment that one verdict is about; the advantage compares it with the same segment of the other completions.
`small_experiment.py` has the gate.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from rlm_process.advantages import step_relative
from rlm_process.step_boundaries import Every
from small_experiment import Arm, Experiment, areas, main
from small_policy import SameLength, Tokens, World, equation, in_order, train

from rlm_plugins.registry.part import Part

RESULTS = Path(__file__).parent / "results"
PROMPTS, TOKENS, CHOICES, RIGHT = 8, 48, 4, 0.97
RATE = 3.0
LENGTHS = {"trajectory": TOKENS, "turn": TOKENS // 4, "step": 4, "token": 1}
"""Tokens of a segment."""


def verdicts(every: int, wrong: float, is_share: bool, completion_ids: Sequence[Tokens], step: int) -> torch.Tensor:
    """Return dense rewards (B, T): on the last token of each segment 1 if all of its tokens are right.

    Args:
        every: Tokens of a segment.
        wrong: Share of the verdicts that are inverted.
        is_share: Pay the share of right tokens instead.
        completion_ids: Completions.
        step: Of the training; with it the inverted verdicts are drawn.
    """
    right = (torch.tensor(completion_ids) == 0).double().unflatten(1, (-1, every))
    paid = right.mean(2) if is_share else right.prod(2)
    coin = random.Random(step)
    inverted = torch.tensor([[coin.random() < wrong for _ in row] for row in paid])
    dense = torch.zeros_like(right)
    dense[:, :, -1] = torch.where(inverted, 1 - paid, paid)
    return dense.flatten(1)


def experiment(scale: float = 1.0, steps: int = 25) -> Experiment:
    """Compare the segments that a verdict is about.

    Args:
        scale: Factor of the rate.
        steps: Batches.
    """
    start = torch.zeros(PROMPTS * TOKENS, CHOICES, dtype=torch.float64)
    start[:, 0] = math.log(RIGHT / (1 - RIGHT) * (CHOICES - 1))
    first = range(0, len(start), TOKENS)
    world = World(start, TOKENS, -1, first, in_order(*start.shape), lambda _, completion: float(not any(completion)))

    def accuracy(logits: torch.Tensor) -> float:
        return logits.softmax(1)[:, 0].view(PROMPTS, TOKENS).prod(1).mean().item()

    def run(every: int, wrong: float, is_share: bool, seed: int) -> dict[str, list[float]]:
        def advantage(
            completion_ids: Sequence[Tokens], group: torch.Tensor, mask: torch.Tensor, step: int
        ) -> torch.Tensor:
            dense = verdicts(every, wrong, is_share, completion_ids, step)
            segments = Every(every=every)
            return step_relative(dense, group, mask, completion_ids, None, steps=segments, alike="number", gamma=0.0)

        part = Part("rlm_advantages", "verdicts", "granularity", advantage).bind({})
        parts = replace(equation(importance="token", policy_loss="clip"), advantage=part)
        size = {"prompts": 4, "group_size": 8, "rate": RATE * scale, "optimizer": SameLength}
        return areas(train(world, parts, {"accuracy": accuracy}, seed=seed, steps=steps, **size), "accuracy")

    arms = [Arm(f"a verdict per {name}", partial(run, every, 0.0, False)) for name, every in LENGTHS.items()]
    arms += [
        Arm("share of right tokens, one number", partial(run, TOKENS, 0.0, True)),
        Arm("a verdict per step, 30 % of them wrong", partial(run, 4, 0.3, False)),
    ]
    names = {"area": "mean accuracy over steps", "accuracy": "accuracy at the end"}
    decided = [f"a verdict per {name}" for name in ("step", "token")]
    return Experiment("One world, four grains of reward", arms, names, "area", 1, decided, "accuracy", drawn="accuracy")


EXPERIMENTS = {"granularity": experiment}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
