"""Length bias of three aggregations: ``python benchmarks/length_bias.py``; `small_experiment.py` has the gate.

A completion is an answer, a mark, and idle tokens until it ends. The mark tells whether the answer was right, so that
the number of idle tokens may depend on it. The control of the explanation hides the mark.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from small_experiment import Arm, Experiment, main
from small_policy import NEVER, Measure, World, algorithm, train

RESULTS = Path(__file__).parent / "results"
RIGHT, WRONG, IDLE, END, MARK, OTHER_MARK = range(6)
LIMIT, STAY = 64, 11

ROWS: dict[str, dict[str, Any]] = {
    "Dr. GRPO": {"name": "dr_grpo"},
    "DAPO": {"name": "dapo", "shapers": []},
    "GRPO": {"name": "grpo", "penalties": []},
    "GRPO without std": {"name": "grpo", "penalties": [], "advantage": {"name": "group_relative", "scale": "none"}},
}


def answers(is_visible: bool) -> World:
    """Return the task; the states are the answer, two marks, and the idle tokens after each."""
    start = torch.full((5, 6), NEVER, dtype=torch.float64)
    start[0, [RIGHT, WRONG]] = 0.0
    start[1, MARK], start[2, OTHER_MARK if is_visible else MARK] = 0.0, 0.0
    start[3:, IDLE], start[3:, END] = math.log(STAY), 0.0
    after_wrong = 4 if is_visible else 3
    following = torch.tensor([[1, 2, 0, 0, 0, 0], [3] * 6, [after_wrong] * 6, [3] * 6, [4] * 6])
    return World(
        start=start,
        limit=LIMIT,
        end=END,
        first=[0],
        following=following,
        reward=lambda _, completion: float(completion[0] == RIGHT),
        observed=frozenset({1, 2}),
    )


def length_after(state: int) -> Measure:
    """Return the expected number of tokens after the mark."""

    def measure(logits: torch.Tensor) -> float:
        end = logits[state].softmax(0)[END].item()
        return (1 - (1 - end) ** (LIMIT - 2)) / end

    return measure


def experiment(scale: float = 1.0, steps: int = 60) -> Experiment:
    """Compare aggregations, with the mark and without.

    Args:
        scale: Factor of the rate.
        steps: Batches.
    """

    def run(slots: dict[str, Any], is_visible: bool, seed: int) -> dict[str, list[float]]:
        measures: dict[str, Measure] = {
            "wrong": length_after(4 if is_visible else 3),
            "right": length_after(3),
            "accuracy": lambda logits: logits[0].softmax(0)[RIGHT].item(),
        }
        parts, rate = algorithm(**slots), 0.02 * scale
        return train(answers(is_visible), parts, measures, seed=seed, steps=steps, prompts=12, rate=rate)

    arms = [Arm(label, partial(run, slots, True)) for label, slots in ROWS.items()]
    arms += [Arm(f"{label}, mark hidden", partial(run, ROWS[label], False)) for label in ("Dr. GRPO", "DAPO", "GRPO")]
    names = {"wrong": "tokens after a wrong answer", "right": "tokens after a right answer", "accuracy": "accuracy"}
    decided = ["GRPO", "GRPO without std"]
    return Experiment("Length bias", arms, names, "wrong", 1, decided, task="accuracy")


EXPERIMENTS = {"length_bias": experiment}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
