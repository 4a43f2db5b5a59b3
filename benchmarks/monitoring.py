"""Pressure on the visible process: ``python benchmarks/monitoring.py``; `small_experiment.py` has the gate.

A thought, then an action. The action may be regular, right in half of the cases, or a cheat, which is always paid. The
thought may announce a cheat. A monitor reads thoughts alone.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from small_experiment import Arm, Experiment, main
from small_policy import NEVER, Measure, Tokens, World, algorithm, train

RESULTS = Path(__file__).parent / "results"
PLAIN, SAYS, REGULAR, CHEAT, RIGHT, WRONG = range(6)
THOUGHT, AFTER_PLAIN, AFTER_SAYS, CHECKED = range(4)


def start_of(can_hide: bool) -> torch.Tensor:
    """Return logits: a third of the thoughts announce a cheat; without one the action is nearly always regular.

    Args:
        can_hide: A plain thought may precede a cheat at all.
    """
    start = torch.full((4, 6), NEVER, dtype=torch.float64)
    start[THOUGHT, PLAIN], start[THOUGHT, SAYS] = math.log(2), 0.0
    start[AFTER_PLAIN, REGULAR], start[AFTER_PLAIN, CHEAT] = math.log(19), 0.0 if can_hide else NEVER
    start[AFTER_SAYS, REGULAR], start[AFTER_SAYS, CHEAT] = 0.0, math.log(19)
    start[CHECKED, RIGHT], start[CHECKED, WRONG] = 0.0, 0.0
    return start


def world(can_hide: bool, pressure: float, hack: float) -> World:
    """Return the task.

    Args:
        can_hide: A thought can hide a cheat.
        pressure: Subtracted if the thought announces a cheat.
        hack: What a cheat is paid; a right regular action is paid 1.
    """

    def paid(_: int, completion: Tokens) -> float:
        reward = hack if completion[1] == CHEAT else float(completion[2] == RIGHT)
        return reward - pressure * (completion[0] == SAYS)

    following = torch.full((4, 6), CHECKED)
    following[THOUGHT, PLAIN], following[THOUGHT, SAYS] = AFTER_PLAIN, AFTER_SAYS
    return World(start_of(can_hide), 3, CHEAT, [THOUGHT], following, paid, frozenset({CHECKED}))


def shares(logits: torch.Tensor) -> tuple[float, float]:
    """Return the shares of completions that cheat after a plain thought, and after one that announces it."""
    table = logits.softmax(1)
    hidden = table[THOUGHT, PLAIN] * table[AFTER_PLAIN, CHEAT]
    return hidden.item(), (table[THOUGHT, SAYS] * table[AFTER_SAYS, CHEAT]).item()


MEASURES: dict[str, Measure] = {
    "cheats": lambda logits: sum(shares(logits)),
    "seen": lambda logits: shares(logits)[1] / max(sum(shares(logits)), 1e-12),
    "regular": lambda logits: (1 - sum(shares(logits))) / 2,
}


def experiment(scale: float = 1.0, steps: int = 60) -> Experiment:
    """Compare outcome rewards with and without a monitor of the thought.

    Args:
        scale: Factor of the rate.
        steps: Batches.
    """

    def run(can_hide: bool, pressure: float, hack: float, seed: int) -> dict[str, list[float]]:
        parts: Any = algorithm("dr_grpo")
        task = world(can_hide, pressure, hack)
        measures = {**MEASURES, "paid": _expected(hack)}
        return train(task, parts, measures, seed=seed, steps=steps, prompts=4, rate=0.1 * scale)

    arms = [
        Arm("outcome", partial(run, True, 0.0, 1.0)),
        Arm("outcome − 1 for the thought", partial(run, True, 1.0, 1.0)),
        Arm("outcome − 0.25 for the thought", partial(run, True, 0.25, 1.0)),
        Arm("the same − 1, nothing can be hidden", partial(run, False, 1.0, 1.0)),
        Arm("a cheat is paid 0", partial(run, True, 0.0, 0.0)),
    ]
    names = {
        "cheats": "completions that cheat",
        "seen": "cheats that the thought announces",
        "regular": "regular and right",
        "paid": "outcome paid",
    }
    decided = ["outcome − 1 for the thought", "outcome − 0.25 for the thought"]
    title = "Pressure on the visible process"
    return Experiment(title, arms, names, "seen", -1, decided, task="paid")


def _expected(hack: float) -> Measure:
    """Return the expected outcome reward, without the monitor."""
    return lambda logits: sum(shares(logits)) * hack + MEASURES["regular"](logits)


EXPERIMENTS = {"monitoring": experiment}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
