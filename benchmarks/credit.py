"""Credit for one decisive token: ``python benchmarks/credit.py [--only fork]``; `small_experiment.py` has the gate.

`fork`: the decisive token is the last, after ordinary ones, and every algorithm has the same number of generated
tokens. `discount_N`: it is the first, before N idle tokens, and what reaches it depends on γ, λ and the critic.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rlm_process.prime import ImplicitReward
from rlm_process.step_boundaries import Every
from rlm_process.tree_rollout import EntropyTree, Tree
from small_experiment import Arm, Experiment, areas, main, on_grid
from small_policy import NEVER, Policy, Tokens, World, algorithm, equation, train

from rlm_plugins.equation.equation import Equation

RESULTS = Path(__file__).parent / "results"
ORDINARY, CHOICES, BUDGET, POINTS = 12, 6, 12_000, 30
LENGTHS = (16, 64, 256)


class TableReward:
    """Auxiliary model of `implicit_reward`: a table of logits that begins as the base."""

    def __init__(self, world: World, rate: float) -> None:
        self.world, self.logits = world, world.start.clone().requires_grad_()
        self.optimizer = torch.optim.Adam([self.logits], lr=rate)

    def logp(self, _: Any, prompts: Sequence[Tokens], completions: Sequence[Tokens], width: int) -> torch.Tensor:
        """Return log-probs (B, T) without gradient."""
        return self._logp(completions, width).detach()

    def train_step(
        self, _: Any, prompts: Any, completions: Sequence[Tokens], width: int, loss: Callable[..., Any], step: int
    ) -> float:
        """Train: take an optimizer step on the loss of all completions."""
        self.optimizer.zero_grad()
        loss(self._logp(completions, width), list(range(len(completions)))).backward()
        self.optimizer.step()
        return 0.0

    def sum_over_ranks(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x`: there is one process."""
        return x

    def _logp(self, completions: Sequence[Tokens], width: int) -> torch.Tensor:
        tokens = torch.tensor(completions)
        return self.logits.log_softmax(1)[torch.arange(width), tokens]


def forked() -> World:
    """Return a task of ordinary tokens, two to choose from, and a fork with one right branch."""
    start = torch.zeros(ORDINARY + 1, CHOICES + 1, dtype=torch.float64)
    start[:ORDINARY, 0], start[:ORDINARY, 2:] = math.log(9), NEVER
    start[ORDINARY, 0], start[ORDINARY, CHOICES] = math.log(1.5), NEVER
    following = (torch.arange(ORDINARY + 1) + 1).clamp(max=ORDINARY).unsqueeze(1).expand(*start.shape)
    return World(start, ORDINARY + 1, CHOICES, [0], following, lambda _, completion: float(completion[ORDINARY] == 0))


def prime(world: World, rate: float) -> Equation:
    """Return PRIME's equation with a table in place of its adapter, and no filter of prompts."""
    parts = algorithm("prime", filters=[], penalties=[])
    shaper = parts.shapers[0]
    part = ImplicitReward(**shaper.knobs)
    part._models = [TableReward(world, rate)]  # type: ignore[list-item]
    return replace(parts, shapers=[replace(shaper, target=part)])


def fork(scale: float = 1.0, budget: int = BUDGET) -> Experiment:
    """Compare sources of credit with the same number of generated tokens.

    Args:
        scale: Factor of the rate.
        budget: Generated tokens.
    """
    world, rate = forked(), 0.05 * scale

    def accuracy(logits: torch.Tensor) -> float:
        return logits[ORDINARY].softmax(0)[0].item()

    def run(build: Callable[[], Equation], options: Mapping[str, Any], seed: int) -> dict[str, list[float]]:
        size = {"prompts": 4, "group_size": 8, **options}
        curves = train(world, build(), {"accuracy": accuracy}, seed=seed, budget=budget, rate=rate, **size)
        return areas(on_grid(curves, budget, POINTS), "accuracy")

    plain = {"penalties": []}
    step = Every(every=4)
    rows: dict[str, tuple[Callable[[], Equation], dict[str, Any]]] = {
        "grpo": (partial(algorithm, "grpo", **plain), {}),
        "tree_rl: fork anywhere": (partial(algorithm, "tree_rl"), {"source": Tree(steps=Every(every=1))}),
        "tree_rl: fork at the largest surprisal": (partial(algorithm, "tree_rl"), {"source": EntropyTree()}),
        "tree_rl by entropy": (partial(algorithm, "tree_rl"), {"source": EntropyTree(by="entropy", forks=7)}),
        "vine_ppo, 4 continuations": (
            partial(
                algorithm,
                "vine_ppo",
                **plain,
                advantage={"name": "vine", "continuations": 4, "whiten": True, "steps": step.model_dump()},
            ),
            {"prompts": 4, "group_size": 1},
        ),
        "prime": (partial(prime, world, rate), {}),
    }
    arms = [Arm(label, partial(run, *row)) for label, row in rows.items()]
    names = {"area": "mean accuracy over tokens", "accuracy": "accuracy at the end"}
    title = f"One fork after {ORDINARY} ordinary tokens"
    return Experiment(title, arms, names, "area", 1, [], task="accuracy", drawn="accuracy", by_tokens=True)


def first_token(idle: int) -> Callable[..., dict[str, Any]]:
    """Return a rollout source that samples the first token; the idle ones are certain, so no draw is needed."""

    def source(prompts: Sequence[int], trainer: Policy) -> dict[str, Any]:
        chances = trainer.logits[0].softmax(0)
        drawn = torch.multinomial(chances, len(prompts), replacement=True, generator=trainer.generator).tolist()
        trainer.num_tokens += len(prompts) * (1 + idle)
        return {"completion_ids": [[token, *[0] * idle] for token in drawn]}

    return source


def discount(idle: int, scale: float = 1.0, steps: int = 60) -> Experiment:
    """Compare γ and λ where the first token decides and `idle` tokens follow.

    Args:
        idle: Tokens after the decisive one.
        scale: Factor of the rate.
        steps: Batches.
    """
    choices = 4
    start = torch.full((1 + 2 * idle, choices), NEVER, dtype=torch.float64)
    start[0] = 0.0
    start[1:, 0] = 0.0
    following = (torch.arange(1 + 2 * idle) + 1).unsqueeze(1).repeat(1, choices)
    following[0], following[0, 0], following[-1], following[idle] = 1 + idle, 1, 0, 0
    world = World(start, 1 + idle, choices, [0], following, lambda _, completion: float(completion[0] == 0))

    def accuracy(logits: torch.Tensor) -> float:
        return logits[0].softmax(0)[0].item()

    def run(gae: dict[str, Any], seed: int) -> dict[str, list[float]]:
        parts = equation(
            advantage={"name": "gae", **gae},
            importance="token",
            policy_loss="clip",
            penalties=[{"name": "value_loss", "beta": 1.0, "epsilon": None}],
            aggregator="sequence_sum",
        )
        curves = train(
            world,
            parts,
            {"accuracy": accuracy},
            seed=seed,
            steps=steps,
            prompts=2,
            rate=0.1 * scale,
            critic_rate=0.1,
            source=first_token(idle),
            optimizer=torch.optim.SGD,
        )
        reached = [step for step, value in enumerate(curves["accuracy"]) if value >= 0.9]
        first = float(min(reached, default=steps))
        return {**curves, "first": [min(first, float(step)) for step in range(steps + 1)]}

    arms = [
        Arm(label, partial(run, gae))
        for label, gae in {
            "γ 1, λ 1": {"gamma": 1.0, "lam": 1.0},
            "γ 0.99, λ 1": {"gamma": 0.99, "lam": 1.0},
            "γ 1, λ 0.95": {"gamma": 1.0, "lam": 0.95},
            "γ 1, λ 0.95, critic λ 1": {"gamma": 1.0, "lam": 0.95, "lam_critic": 1.0},
        }.items()
    ]
    names = {"first": "steps to 90 %", "accuracy": "accuracy at the end"}
    title = f"{idle} idle tokens after the decisive one"
    return Experiment(title, arms, names, "first", 1, [], task="accuracy", drawn="accuracy")


EXPERIMENTS: dict[str, Callable[..., Experiment]] = {
    "fork": fork,
    **{f"discount_{idle}": partial(discount, idle) for idle in LENGTHS},
}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
