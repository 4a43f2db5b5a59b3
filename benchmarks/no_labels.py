"""Rewards without labels: ``python benchmarks/no_labels.py``; `small_experiment.py` has the gate.

`no_labels`: for one of the four prompts the most likely answer is wrong, so votes and certainty can reach 75 %, and
labels 100 %. `ttrl_N`: programs of one or two functions, N of six of which are mostly applied wrong; programs share
the skill of a function, so that a prompt may learn from the votes on another one.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import torch
from lessons import words
from rlm_intrinsic import em_ft, entropy_reshaped, majority_vote, random_reward, rlsc, vote_share
from rlm_intrinsic.majority import majority_of
from small_experiment import Arm, Experiment, main
from small_policy import NEVER, World, equation, sample, train

from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.equation.equation import Equation
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.report.objective_text import slots_of

BIAS = 2.5
"""Logit of the most likely token; the other three have 0."""
Scores = Sequence[float | None]


def scored(
    reward: Callable[..., Scores], completion_ids: Sequence[Sequence[int]], group: torch.Tensor, **more: Any
) -> Any:
    """Return the scores of a reward for the completions, 0 where a group has none."""
    texts = ["".join("abcdefgh"[token] for token in ids) for ids in completion_ids]
    scores = reward([f"{number}" for number in group.tolist()], [f"<answer>{text}</answer>" for text in texts], **more)
    return torch.tensor([score or 0.0 for score in scores], dtype=torch.float64)


def by_votes(completion_ids: Any, group: torch.Tensor) -> torch.Tensor:
    """Return Â of `majority_vote`."""
    return group_relative(scored(majority_vote, completion_ids, group), group)


def by_share(completion_ids: Any, group: torch.Tensor) -> torch.Tensor:
    """Return Â of `vote_share`."""
    return group_relative(scored(vote_share, completion_ids, group), group)


def by_chance(completion_ids: Any, group: torch.Tensor, step: int) -> torch.Tensor:
    """Return Â of `random_reward`."""
    state = SimpleNamespace(global_step=step)
    return group_relative(scored(random_reward, completion_ids, group, trainer_state=state), group)


def reshaped(completion_ids: Any, group: torch.Tensor, entropy: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return Â of `majority_vote`, reshaped by the entropy (`ettrl`)."""
    return entropy_reshaped(scored(majority_vote, completion_ids, group), entropy, group, mask)


def experiment(rate: float = 0.1, steps: int = 60) -> Experiment:
    """Compare rewards without labels with the labels.

    Args:
        rate: Of Adam.
        steps: Batches.
    """
    world, accuracy = words(BIAS)
    start = world.start.clone()
    start[9, :4] = torch.tensor([BIAS, 0.0, 0.0, 0.0])  # prompt 3, whose first right token is 3
    world = replace(world, start=start)
    unpaid = replace(world, reward=lambda prompt, completion: 0.0)
    own = {"majority_vote": by_votes, "vote_share": by_share, "ettrl": reshaped, "random_reward": by_chance}

    def run(task: Any, parts: Equation, seed: int) -> dict[str, list[float]]:
        return train(task, parts, {"accuracy": accuracy}, seed=seed, steps=steps, prompts=4, group_size=8, rate=rate)

    arms = [Arm("labels", partial(run, world, equation(advantage="group_relative")))]
    for name, function in own.items():
        part = Part("rlm_advantages", name, "no_labels", function).bind({})
        arms.append(Arm(name, partial(run, unpaid, replace(equation(), advantage=part))))
    for name, algorithm in {"rlsc": rlsc, "em_ft": em_ft}.items():
        arms.append(Arm(name, partial(run, unpaid, Equation.from_slots(slots_of(algorithm, Registry())))))
    decided = [arm.label for arm in arms[1:]]
    return Experiment("Rewards without labels", arms, {"accuracy": "accuracy"}, "accuracy", -1, decided, "accuracy")


FUNCTIONS, VOTES = 6, 64
FIRST, SECOND = 0.45, 0.36
"""The chances of a function's two most likely tokens; the first is right, unless the function is mostly wrong."""
PROGRAMS = [(f,) for f in range(FUNCTIONS)] + [
    (f, (f + shift) % FUNCTIONS) for f in range(FUNCTIONS) for shift in (1, 3)
]


def programs(mostly_wrong: int) -> World:
    """Return the task on programs of one and two functions, the first `mostly_wrong` of which are.

    Args:
        mostly_wrong: Functions whose most likely token is a wrong one.
    """
    rest = (1 - FIRST - SECOND) / (FUNCTIONS - 2)
    chances = torch.full((FUNCTIONS, FUNCTIONS), rest, dtype=torch.float64)
    for function in range(FUNCTIONS):
        own, other = (SECOND, FIRST) if function < mostly_wrong else (FIRST, SECOND)
        chances[function, function], chances[function, (function + 2) % FUNCTIONS] = own, other
    end = FUNCTIONS
    start = torch.full((FUNCTIONS + 1, FUNCTIONS + 1), NEVER, dtype=torch.float64)
    start[:FUNCTIONS, :FUNCTIONS] = chances.log()
    start[FUNCTIONS, end] = 0.0
    rows, first, following = list[int](), list[int](), list[list[int]]()
    for program in PROGRAMS:
        first.append(len(rows))
        for row in (*program, FUNCTIONS):
            rows.append(row)
            following.append([min(len(rows), first[-1] + len(program))] * (FUNCTIONS + 1))

    def paid(prompt: int, completion: Sequence[int]) -> float:
        return float(tuple(completion) == (*PROGRAMS[prompt], end))

    return World(start, 3, end, first, torch.tensor(following), paid, rows=torch.tensor(rows))


def right(logits: torch.Tensor) -> float:
    """Return the exact accuracy over all programs."""
    table = logits.softmax(1)
    return fmean(math.prod(table[f, f].item() for f in program) for program in PROGRAMS)


def majority_right(world: World, times: int = 20) -> float:
    """Return maj@64 of the start: how often 64 votes elect the right answer; a tie elects none."""
    generator, elected = torch.Generator().manual_seed(7), 0.0
    for prompt in range(len(PROGRAMS)):
        for _ in range(times):
            votes = Counter(map(tuple, sample(world, world.start, [prompt] * VOTES, generator)))
            winner = majority_of(votes)
            elected += winner is not None and world.reward(prompt, winner)
    return elected / len(PROGRAMS) / times


def ttrl(mostly_wrong: int, scale: float = 1.0, steps: int = 60) -> Experiment:
    """Compare votes with labels and chance, from a start of a given maj@64.

    Args:
        mostly_wrong: Functions whose most likely token is a wrong one.
        scale: Factor of the rate.
        steps: Batches.
    """
    world = programs(mostly_wrong)
    unpaid = replace(world, reward=lambda prompt, completion: 0.0)
    majority = majority_right(world)
    measures = {"accuracy": right, "gain": lambda logits: right(logits) - majority}

    def run(task: World, parts: Equation, seed: int) -> dict[str, list[float]]:
        size: dict[str, Any] = {"prompts": 4, "group_size": VOTES, "rate": 0.05 * scale}
        return train(task, parts, measures, seed=seed, steps=steps, **size)

    arms = [Arm("labels", partial(run, world, equation(advantage="group_relative")))]
    own = {"majority_vote (TTRL)": by_votes, "vote_share": by_share, "ettrl": reshaped, "random_reward": by_chance}
    for label, function in own.items():
        part = Part("rlm_advantages", function.__name__, "no_labels", function).bind({})
        arms.append(Arm(label, partial(run, unpaid, replace(equation(), advantage=part))))
    names = {"accuracy": "accuracy", "gain": "accuracy less maj@64 of the start"}
    title = f"TTRL from maj@64 {majority:.2f}"
    return Experiment(title, arms, names, "accuracy", -1, [], task="accuracy")


EXPERIMENTS: dict[str, Callable[..., Experiment]] = {
    "no_labels": experiment,
    **{f"ttrl_{number}": partial(ttrl, number) for number in (1, 4)},
}

if __name__ == "__main__":
    page = Path(__file__).parent / "results"
    sys.exit(main(EXPERIMENTS, page / "effects.md", keep=page / "effects"))
