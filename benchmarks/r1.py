"""Experiments on DeepSeek-R1: ``python benchmarks/r1.py [--only r1_stages]``; `small_experiment.py` has the gate.

`r1_language`: the share of Latin words as a reward beside the accuracy, where thoughts may mix two scripts.
`r1_stages`: RL alone against cold start, RL, fine-tuning on right samples and RL, with as many tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from r1_world import ALL, ASKED, END, QUESTIONS, STEPS, THINK, WORD, Measures, base, right_digit, task
from small_experiment import Arm, Experiment, areas, main, on_grid
from small_policy import Measure, Policy, Tokens, algorithm, sample, train, without_baseline

RESULTS = Path(__file__).parent / "results"
EVERYTHING = {"accuracy": 1.0, "language": 1.0, "rubric": 1.0}


def language(greek_better: bool, scale: float = 1.0, steps: int = 40) -> Experiment:
    """Compare the accuracy as reward with the accuracy and the share of Latin words.

    Args:
        greek_better: The second word of a thought is right more often in Greek, at the start.
        scale: Factor of the rate.
        steps: Batches.
    """
    measures = Measures()
    named: dict[str, Measure] = {"right": measures.right, "latin": measures.latin, "mixed": measures.mixed}

    def run(weight: float, seed: int) -> dict[str, list[float]]:
        model = base(0.98, greek_better)
        world = task(model().detach(), ASKED, {"accuracy": 1.0, "language": weight})
        parts = algorithm("grpo", penalties=[])
        return train(world, parts, named, seed=seed, steps=steps, rate=0.05 * scale, model=model)

    arms = [
        Arm("accuracy", partial(run, 0.0)),
        Arm("accuracy + language consistency", partial(run, 1.0)),
        Arm("accuracy + 0.2 · language consistency", partial(run, 0.2)),
    ]
    names = {"right": "accuracy", "latin": "Latin words", "mixed": "thoughts that mix scripts"}
    title = "Thoughts in two scripts" + (", Greek is right more often" if greek_better else "")
    return Experiment(title, arms, names, "mixed", -1, ["accuracy + language consistency"], task="right")


RL_RATE, COLD_RATE, TUNE_RATE = 0.1, 0.05, 0.1
COLD_START, POOL, RL, BUDGET = 1_500, 4_500, 9_000, 24_000
"""Tokens of the stages: demonstrations, samples and fine-tuning of the third, each RL; and of all of them."""
SHOWN = 2
"""Questions that the demonstrations of the cold start answer."""


class Stages:
    """A policy on its way through the stages of a pipeline; tokens count if sampled or trained on.

    Args:
        seed: Of every stage.
        scale: Factor of the rate.
    """

    def __init__(self, seed: int, scale: float) -> None:
        measured = Measures()
        self.measures: dict[str, Measure] = {
            "right": measured.right,
            "rubric": measured.rubric,
            "mixed": measured.mixed,
        }
        self.model, self.seed, self.scale = base(0.3, False), seed, scale
        self.curves = dict[str, list[float]]()

    def add(self, curves: dict[str, list[float]], sampled: int = 0) -> None:
        """Add the curves of a stage, before which so many tokens were sampled."""
        before = self.curves.get("tokens", [0.0])[-1] + sampled
        curves = {**curves, "tokens": [before + tokens for tokens in curves["tokens"]]}
        self.curves = {name: [*self.curves.get(name, []), *values] for name, values in curves.items()}

    def rl(self, prompts: Sequence[int], budget: int) -> None:
        """Train by GRPO on the accuracy and the language of questions, and the rubric of requests."""
        world, parts = task(self.model().detach(), prompts, EVERYTHING), algorithm("grpo", penalties=[])
        self.add(
            train(
                world, parts, self.measures, seed=self.seed, budget=budget, rate=RL_RATE * self.scale, model=self.model
            )
        )

    def tune(self, pool: dict[int, list[Tokens]], rate: float, budget: int, sampled: int = 0) -> None:
        """Train on completions of a pool, each as likely as the others of its prompt."""
        own = list(pool.values())

        def source(prompts: Sequence[int], trainer: Policy) -> dict[str, Any]:
            uniform = torch.rand(len(prompts), generator=trainer.generator).tolist()
            drawn = [own[prompt][int(x * len(own[prompt]))] for prompt, x in zip(prompts, uniform, strict=True)]
            trainer.num_tokens += sum(map(len, drawn))
            return {"completion_ids": drawn}

        world = replace(task(self.model().detach(), list(pool), EVERYTHING), reward=lambda prompt, completion: 1.0)
        size: dict[str, Any] = {
            "prompts": 16,
            "group_size": 1,
            "rate": rate * self.scale,
            "source": source,
            "model": self.model,
        }
        curves = train(world, without_baseline(), self.measures, seed=self.seed, budget=budget, **size)
        self.add(curves, sampled)

    def pool(self, budget: int) -> tuple[dict[int, list[Tokens]], int]:
        """Return samples that are right and Latin, or have the whole score of the rubric, and the tokens of all."""
        generator = torch.Generator().manual_seed(self.seed)
        world, kept, tokens = task(self.model().detach(), ALL, EVERYTHING), dict[int, list[Tokens]](), 0
        while tokens < budget:
            prompts = [prompt for prompt in ALL for _ in range(8)]
            for prompt, completion in zip(prompts, sample(world, world.start, prompts, generator), strict=True):
                tokens += len(completion)
                if world.reward(prompt, completion) == (2.0 if prompt < QUESTIONS else 1.0):
                    kept.setdefault(prompt, []).append(completion)
        return kept, tokens


def demonstration(question: int) -> Tokens:
    """Return the right answer after a Latin thought."""
    return [THINK, *(WORD + (question + step) % 3 for step in range(STEPS)), right_digit(question), END]


def stages(scale: float = 1.0) -> Experiment:
    """Compare RL alone with cold start, RL, fine-tuning on right samples and RL, with the same number of tokens.

    Args:
        scale: Factor of the rate.
    """

    def run(cold: bool, rejection: str, seed: int) -> dict[str, list[float]]:
        policy = Stages(seed, scale)
        if cold:
            policy.tune({question: [demonstration(question)] for question in range(SHOWN)}, COLD_RATE, COLD_START)
        if rejection:
            policy.rl(ASKED, RL)
            kept, tokens = policy.pool(POOL // 2)
            if rejection == "base":
                policy.model = base(0.3, False)
            policy.tune(kept, TUNE_RATE, POOL // 2, tokens)
        policy.rl(ALL, BUDGET - int(policy.curves.get("tokens", [0])[-1]))
        curves = on_grid(policy.curves, BUDGET, 30)
        return {**curves, **{f"{name} mean": areas(curves, name)["area"] for name in policy.measures}}

    arms = [
        Arm("RL alone", partial(run, False, "")),
        Arm("cold start, RL", partial(run, True, "")),
        Arm("cold start, RL, fine-tuning from the base, RL (R1)", partial(run, True, "base")),
        Arm("the same, fine-tuning from the RL policy", partial(run, True, "policy")),
    ]
    names = {
        "right": "accuracy on questions",
        "right mean": "mean over tokens",
        "rubric": "rubric of requests",
        "rubric mean": "mean over tokens",
        "mixed mean": "thoughts that mix scripts, mean over tokens",
    }
    return Experiment("Stages of R1", arms, names, "right", 1, [], task="right", by_tokens=True)


EXPERIMENTS: dict[str, Callable[..., Experiment]] = {
    "r1_language": partial(language, False),
    "r1_language_apart": partial(language, True),
    "r1_stages": stages,
}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
