"""Four tricks, each where its paper claims an effect: ``python benchmarks/trick_claims.py [--only clip_higher]``.

`small_experiment.py` has the gate. Where tables of logits would hide a weight between tokens, because Adam divides
each by its own size, every update has the same length (`SameLength`): then arms differ in direction alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from small_experiment import Arm, Experiment, areas, main
from small_policy import NEVER, Measure, SameLength, Tokens, World, equation, in_order, train

RESULTS = Path(__file__).parent / "results"
Curves = dict[str, list[float]]


def logit(p: float) -> float:
    """Return log p / (1 − p)."""
    return math.log(p / (1 - p))


def mixture(chances: Sequence[float], title: str, scale: float = 1.0) -> Experiment:
    """Compare scales of the advantage on prompts of these chances, each of one token.

    Args:
        chances: Share of right answers by prompt, at the start.
        title: Of the table.
        scale: Factor of the rate.
    """
    start = torch.tensor([[logit(p), 0.0] for p in chances], dtype=torch.float64)
    states = range(len(chances))
    world = World(start, 1, 2, states, in_order(*start.shape), lambda _, completion: float(completion[0] == 0))

    def of(state: int) -> Measure:
        return lambda logits: logits[state].softmax(0)[0].item()

    kinds = {f"p{round(100 * p)}": of(state) for state, p in enumerate(chances)}
    measures: dict[str, Measure] = {"accuracy": lambda logits: logits.softmax(1)[:, 0].mean().item(), **kinds}

    def run(by: str, seed: int) -> Curves:
        parts = equation(advantage={"name": "group_relative", "scale": by}, importance="token", policy_loss="clip")
        rate = 0.1 * scale
        curves = train(world, parts, measures, seed=seed, steps=50, prompts=12, rate=rate, optimizer=SameLength)
        return areas(curves, "accuracy")

    arms = [
        Arm(label, partial(run, by))
        for label, by in {
            "std of the group": "group",
            "std of the batch": "batch",
            "std of the centered batch": "centered_batch",
            "no std": "none",
        }.items()
    ]
    names = {"area": "mean accuracy over steps", "accuracy": "mean accuracy"} | {
        f"p{round(100 * p)}": f"accuracy where it was {p}" for p in chances
    }
    return Experiment(title, arms, names, "area", 1, [], task="accuracy", drawn="accuracy")


def clip_higher(scale: float = 1.0) -> Experiment:
    """Compare clips at one fork whose right branch has a chance of 1 %, with 16 updates per batch.

    Args:
        scale: Factor of the rate.
    """
    start = torch.tensor([[logit(0.01), 0.0]], dtype=torch.float64)
    world = World(start, 1, 2, [0], in_order(1, 2), lambda _, completion: float(completion[0] == 0))

    def run(loss: Any, updates: int, seed: int) -> Curves:
        parts = equation(advantage="group_relative", importance="token", policy_loss=loss)
        curves = train(
            world,
            parts,
            {"p": lambda logits: logits[0].softmax(0)[0].item()},
            seed=seed,
            steps=20,
            group_size=32,
            updates=updates,
            rate=0.5 * scale,
            optimizer=torch.optim.SGD,
        )
        return areas(curves, "p")

    def clip(high: float) -> dict[str, Any]:
        return {"name": "clip", "epsilon": 0.2, "epsilon_high": high}

    arms = [
        Arm("clip 0.2 / 0.2", partial(run, clip(0.2), 16)),
        Arm("clip 0.2 / 0.28", partial(run, clip(0.28), 16)),
        Arm("no clip", partial(run, "unclipped", 16)),
        Arm("clip 0.2 / 0.2, 1 update", partial(run, clip(0.2), 1)),
    ]
    names = {"p": "p of the right branch", "area": "mean p over steps"}
    decided = ["clip 0.2 / 0.28"]
    title = "Clip-higher: right branch of 1 %"
    return Experiment(title, arms, names, "area", 1, decided, task="p", begin=(0.005, 0.8), drawn="p")


def overlong(scale: float = 1.0) -> Experiment:
    """Compare what is done with completions that are cut off, where a right answer may exceed the limit.

    Args:
        scale: Factor of the rate.
    """
    needed, limit, room = [2, 8, 24], 16, 64
    start = torch.tensor([[math.log(10), 0.0]], dtype=torch.float64)

    def paid(prompt: int, completion: Tokens) -> float:
        return float(completion[-1] == 1 and len(completion) > needed[prompt])

    def accuracy(logits: torch.Tensor) -> float:
        stay = logits[0].softmax(0)[0].item()
        return fmean(stay**need - stay**room for need in needed)

    def tokens(logits: torch.Tensor) -> float:
        stay = logits[0].softmax(0)[0].item()
        return (1 - stay**room) / (1 - stay)

    def run(longest: int, slots: dict[str, Any], seed: int) -> Curves:
        world = World(start, longest, 1, [0] * len(needed), in_order(1, 2), paid)
        parts = equation(advantage="group_relative", aggregator="fixed_length", **slots)
        measures = {"accuracy": accuracy, "length": tokens}
        return train(world, parts, measures, seed=seed, steps=40, prompts=6, rate=0.05 * scale)

    soft = [{"name": "overlong", "cache": 6}]
    arms = [
        Arm("limit 64", partial(run, room, {})),
        Arm("limit 16", partial(run, limit, {})),
        Arm("limit 16, filter", partial(run, limit, {"token_weights": ["mask_truncated"]})),
        Arm("limit 16, soft penalty", partial(run, limit, {"shapers": soft})),
    ]
    names = {"accuracy": "accuracy with 64 tokens", "length": "tokens with 64"}
    decided = ["limit 16", "limit 16, soft penalty"]
    return Experiment("Overlong answers", arms, names, "accuracy", -1, decided, task="accuracy")


def two_lengths(scale: float = 1.0) -> Experiment:
    """Compare aggregators where a group has short guesses, and long answers that can be learned.

    Args:
        scale: Factor of the rate.
    """
    count, each, end = 16, 0.96, 4
    start = torch.full((3 + count, 5), NEVER, dtype=torch.float64)
    start[0, [0, 1]] = 0.0  # a short answer, a long one
    start[1, 2], start[1, 3] = 0.0, 0.0
    start[2 : 2 + count, 2], start[2 : 2 + count, 3] = logit(each), 0.0
    start[2 + count, end] = 0.0
    following = in_order(*start.shape).clone()
    following[0, 0], following[0, 1], following[1] = 1, 2, 2 + count

    def chance(logits: torch.Tensor, states: slice) -> float:
        return logits.softmax(1)[states, 2].prod().item()

    measures: dict[str, Measure] = {
        "long": lambda logits: chance(logits, slice(2, 2 + count)),
        "share": lambda logits: logits[0].softmax(0)[1].item(),
    }

    def accuracy(logits: torch.Tensor) -> float:
        share = measures["share"](logits)
        return share * measures["long"](logits) + (1 - share) / 2

    world = World(
        start, 2 + count, end, [0], following, lambda _, completion: float(3 not in completion), frozenset({1})
    )

    def run(aggregator: str, seed: int) -> Curves:
        parts = equation(advantage="group_relative", importance="token", policy_loss="clip", aggregator=aggregator)
        shown = {"accuracy": accuracy, **measures}
        return train(world, parts, shown, seed=seed, steps=50, rate=0.1 * scale, optimizer=SameLength)

    arms = [
        Arm(f"{name} ({paper})", partial(run, name))
        for name, paper in {
            "sequence_mean": "GRPO",
            "token_mean": "DAPO",
            "fixed_length": "Dr. GRPO",
        }.items()
    ]
    names = {
        "long": "long answers right",
        "share": "share of long answers",
        "accuracy": "accuracy",
    }
    return Experiment("Two lengths in a group", arms, names, "long", 1, [], task="accuracy")


EXPERIMENTS: dict[str, Callable[..., Experiment]] = {
    "mixture": partial(mixture, [0.95, 0.05], "Std: prompts of 95 and 5 %"),
    "clip_higher": clip_higher,
    "overlong": overlong,
    "two_lengths": two_lengths,
}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
