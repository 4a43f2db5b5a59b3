"""Experiment on habits that a random reward amplifies: ``python benchmarks/model_prior.py``.

`small_experiment.py` has the gate.

A completion begins with a habit: column work, which is right in 90 % of cases, or a direct answer, right in 10 %. The
starts differ in the share of the habits alone. The clip is what may turn noise into a direction, so it is ablated.
"""

from __future__ import annotations

import math
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from small_experiment import Arm, Experiment, main
from small_policy import Tokens, World, equation, in_order, train

RESULTS = Path(__file__).parent / "results"
COLUMNS, DIRECT = range(2)
CHANCE = (0.9, 0.1)
"""Of a right answer, by habit."""
PROMPTS, RATE = 32, 40.0


def experiment(share: float, scale: float = 1.0, steps: int = 25) -> Experiment:
    """Compare a right reward with a random one, with and without what may make it biased.

    Args:
        share: Of column work, at the start.
        scale: Factor of the rate.
        steps: Batches.
    """
    start = torch.tensor([[math.log(share), math.log(1 - share)]], dtype=torch.float64).repeat(PROMPTS, 1)

    def columns(logits: torch.Tensor) -> float:
        return logits.softmax(1)[:, COLUMNS].mean().item()

    def accuracy(logits: torch.Tensor) -> float:
        used = columns(logits)
        return used * CHANCE[COLUMNS] + (1 - used) * CHANCE[DIRECT]

    def run(is_random: bool, loss: Any, updates: int, seed: int) -> dict[str, list[float]]:
        coin = random.Random(seed)

        def paid(_: int, completion: Tokens) -> float:
            return float(coin.random() < (0.5 if is_random else CHANCE[completion[0]]))

        world = World(start, 1, -1, range(PROMPTS), in_order(*start.shape), paid)
        parts = equation(advantage="group_relative", importance="token", policy_loss=loss)
        return train(
            world,
            parts,
            {"accuracy": accuracy, "columns": columns},
            seed=seed,
            steps=steps,
            prompts=PROMPTS,
            updates=updates,
            rate=RATE * scale,
            optimizer=torch.optim.SGD,
        )

    clip = {"name": "clip", "epsilon": 0.2, "epsilon_high": 0.2}
    arms = [
        Arm("right answers, clip", partial(run, False, clip, 4)),
        Arm("random, clip", partial(run, True, clip, 4)),
        Arm("random, no clip", partial(run, True, "unclipped", 4)),
        Arm("random, clip, 1 update", partial(run, True, clip, 1)),
    ]
    names = {"accuracy": "accuracy", "columns": "share of column work"}
    title = f"Random reward, {share:.0%} column work"
    return Experiment(title, arms, names, "accuracy", -1, [], task="accuracy", drawn="columns")


EXPERIMENTS = {f"prior_{round(100 * share)}": partial(experiment, share) for share in (0.65, 0.2)}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
