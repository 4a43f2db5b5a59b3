"""Experiment on sharpening and discovery: ``python benchmarks/discovery.py``; `small_experiment.py` has the gate.

A program is one to four functions in a row. At each step the policy decides to go on or to end, then applies a
function. The skill of a function is one row of the table at every depth; to go on has its own row at each depth.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from small_experiment import Arm, Experiment, main
from small_policy import NEVER, Measure, Tokens, World, equation, train, without_baseline

RESULTS = Path(__file__).parent / "results"
FUNCTIONS, DEEPEST, K = 4, 4, 256
GO, END = FUNCTIONS, FUNCTIONS + 1
GOES_ON = (0.98, 0.5, 0.02, 0.01)
"""At the start, the chance of a first, second, third and fourth step where one is due: of a third step at all, 1 %."""
SKILL, ENDS = 0.9, 0.99
"""At the start, the chance of the right function, and to end where the program does."""
PROGRAMS = [program for depth in range(1, DEEPEST + 1) for program in product(range(FUNCTIONS), repeat=depth)]


def logit(chance: float) -> float:
    """Return log p / (1 − p)."""
    return math.log(chance / (1 - chance))


def start_rows() -> torch.Tensor:
    """Return logits: a row per depth to go on, one at the end of a program, one per function."""
    rows = torch.full((DEEPEST + 1 + FUNCTIONS, FUNCTIONS + 2), NEVER, dtype=torch.float64)
    for row, chance in enumerate([*GOES_ON, 1 - ENDS]):
        rows[row, GO], rows[row, END] = logit(chance), 0.0
    for function in range(FUNCTIONS):
        rows[DEEPEST + 1 + function, :FUNCTIONS] = 0.0
        rows[DEEPEST + 1 + function, function] = logit(SKILL) + math.log(FUNCTIONS - 1)
    return rows


def world(depths: Sequence[int]) -> World:
    """Return the task on all programs of these depths; a deeper one is as likely as a shallow one."""
    rows, first, following, programs = list[int](), list[int](), list[list[int]](), list[tuple[int, ...]]()
    for program in [program for program in PROGRAMS if len(program) in depths]:
        repeat = FUNCTIONS ** (max(depths) - len(program))
        first += [len(rows)] * repeat
        programs += [program] * repeat
        for depth, function in enumerate(program):
            here = len(rows)
            rows += [depth, DEEPEST + 1 + function]
            following += [[here + 1] * (FUNCTIONS + 2), [here + 2] * (FUNCTIONS + 2)]
        rows.append(DEEPEST)
        following.append([len(rows) - 1] * (FUNCTIONS + 2))

    def reward(prompt: int, completion: Tokens) -> float:
        return float(completion == [token for function in programs[prompt] for token in (GO, function)] + [END])

    limit = 2 * max(depths) + 1
    return World(start_rows(), limit, END, first, torch.tensor(following), reward, rows=torch.tensor(rows))


def chance(logits: torch.Tensor, program: Sequence[int]) -> float:
    """Return the probability of the right completion."""
    table = logits.softmax(1)
    steps = [table[depth, GO] * table[DEEPEST + 1 + function, function] for depth, function in enumerate(program)]
    return (math.prod(steps) * table[DEEPEST, END]).item()


def of_depth(depth: int, k: int = 1) -> Measure:
    """Return the measure pass@k over all programs of a depth."""
    programs = [program for program in PROGRAMS if len(program) == depth]

    def measure(logits: torch.Tensor) -> float:
        shown = programs[:: max(1, len(programs) // 16)]
        return fmean(1 - (1 - chance(logits, program)) ** k for program in shown)

    return measure


MEASURES = {
    "two": of_depth(2),
    "three": of_depth(3),
    "three_k": of_depth(3, K),
    "four": of_depth(4),
    "four_k": of_depth(4, K),
}


def experiment(scale: float = 1.0, steps: int = 40) -> Experiment:
    """Compare GRPO with supervised training on right samples of the base, on programs of two or of three functions.

    Args:
        scale: Factor of the rate.
        steps: Batches.
    """

    def run(depths: Sequence[int], is_rl: bool, seed: int) -> dict[str, list[float]]:
        own: dict[str, Any] = {"advantage": "group_relative", "importance": "token", "policy_loss": "clip"}
        size = {"prompts": 8, "group_size": 16, "rate": 0.1 * scale, "updates": 2}
        parts = equation(**own) if is_rl else without_baseline()
        # the base samples for all steps: its right samples are the demonstrations, as many as GRPO has
        return train(world(depths), parts, MEASURES, seed=seed, steps=steps, refresh=1 if is_rl else steps, **size)

    arms = [
        Arm("GRPO, depth 1 and 2", partial(run, (1, 2), True)),
        Arm("rejection fine-tuning, depth 1 and 2", partial(run, (1, 2), False)),
        Arm("GRPO, depth 1 to 3", partial(run, (1, 2, 3), True)),
        Arm("rejection fine-tuning, depth 1 to 3", partial(run, (1, 2, 3), False)),
    ]
    names = {
        "two": "depth 2",
        "three": "depth 3",
        "three_k": f"depth 3, pass@{K}",
        "four": "depth 4",
        "four_k": f"depth 4, pass@{K}",
    }
    decided = ["GRPO, depth 1 to 3"]
    return Experiment("Sharpening or discovery", arms, names, "three", 1, decided, task="two")


EXPERIMENTS = {"discovery": experiment}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
