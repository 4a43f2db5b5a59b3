"""Effect of stale samples: ``python benchmarks/stale_samples.py``; `small_experiment.py` has the gate.

Every age draws the same prompts from the same random stream; age 0 is the control.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from lessons import words
from small_experiment import Arm, Experiment, main
from small_policy import equation, train

RESULTS = Path(__file__).parent / "results"
AGES, RATES = (0, 4, 16), (0.1, 0.4)
EPSILON = 0.2 / 3**0.5
"""Of the ratio of a completion: the mean of three independent log w has 1/√3 of the deviation of one."""

ROWS: dict[str, dict[str, Any]] = {
    "no ratio": {"policy_loss": "reinforce"},
    "clip by token": {"importance": "token", "policy_loss": "clip"},
    "clip by completion": {"importance": "sequence", "policy_loss": {"name": "clip", "epsilon": EPSILON}},
}


def experiment(rate: float, scale: float = 1.0, steps: int = 60) -> Experiment:
    """Compare ages and objectives at one rate.

    Args:
        rate: Of Adam.
        scale: Factor of the rate.
        steps: Batches.
    """
    world, accuracy = words(1.7)

    def run(slots: dict[str, Any], age: int, seed: int) -> dict[str, list[float]]:
        parts = equation(advantage="group_relative", **slots)
        curves = train(
            world,
            parts,
            {"accuracy": accuracy},
            seed=seed,
            steps=steps,
            prompts=4,
            group_size=8,
            rate=rate * scale,
            stale=age,
        )
        means = [fmean(curves["accuracy"][: step + 1]) for step in range(len(curves["accuracy"]))]
        worst = [0.0, *(min(after - before, 0.0) for before, after in pairwise(curves["accuracy"]))]
        return {**curves, "area": means, "falls": [sum(worst[: step + 1]) for step in range(len(worst))]}

    arms = [
        Arm(f"{row}, age {age}", partial(run, slots, age))
        for row, slots in sorted(ROWS.items(), key=lambda item: item[0] != "clip by token")
        for age in AGES
    ]
    names = {"area": "mean accuracy over steps", "accuracy": "accuracy at the end", "falls": "sum of all falls"}
    return Experiment(f"Stale samples, rate {rate}", arms, names, "area", -1, [], task="accuracy")


EXPERIMENTS: dict[str, Callable[[], Experiment]] = {f"stale_{rate}": partial(experiment, rate) for rate in RATES}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md"))
