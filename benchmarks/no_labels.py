"""Rewards without labels: ``python benchmarks/no_labels.py``; `small_experiment.py` has the gate.

For one of the four prompts the most likely answer is wrong, so votes and certainty can reach 75 %, and labels 100 %.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lessons import words
from rlm_intrinsic import em_ft, entropy_reshaped, majority_vote, random_reward, rlsc, vote_share
from small_experiment import Arm, Experiment, main
from small_policy import equation, train

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


EXPERIMENTS = {"no_labels": experiment}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, Path(__file__).parent / "results" / "effects.md"))
