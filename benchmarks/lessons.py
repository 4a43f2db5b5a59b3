"""Five symbols, five experiments: ``python benchmarks/lessons.py [--seeds 10] [--only reward]`` writes docs/lessons.md.

Each experiment trains a small policy (`small_policy.py`) with the parts of the project, and the same with one symbol
changed. Only a run of ten seeds that passes the gate (`small_experiment.py`) writes the page's tables and picture:
each effect has the same sign on every seed.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from small_experiment import Arm, Experiment, main
from small_policy import NEVER, Measure, Tokens, World, equation, in_order, sample, train

from rlm_plugins.equation.equation import Equation
from rlm_plugins.registry.part import Part

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs/lessons.md", ROOT / "docs/lessons.png"


def reward() -> Experiment:
    """Compare a reward that pays the answer anywhere with one that pays the last number."""
    hint, end = 0, 2

    def right(prompt: int, completion: Tokens) -> list[bool]:
        """Return for each number whether it is the answer: of prompts from 9 the hint, else the n-th other number."""
        found, others = [], -1
        for token in completion:
            if token != end:
                others += token != hint
                found.append(prompt >= 9 if token == hint else others == prompt)
        return found

    def anywhere(prompt: int, completion: Tokens) -> float:
        return float(any(right(prompt, completion)))

    def last(prompt: int, completion: Tokens) -> float:
        return float((right(prompt, completion) or [False])[-1])

    def world(paid: Callable[[int, Tokens], float]) -> World:
        return World(torch.zeros(6, 3, dtype=torch.float64), 6, end, [0] * 22, in_order(6, 3), paid)

    def mean_of(paid: Callable[[int, Tokens], float]) -> Measure:
        prompts = torch.randint(22, (500,), generator=torch.Generator().manual_seed(5)).tolist()

        def measure(logits: torch.Tensor) -> float:
            written = sample(world(paid), logits, prompts, torch.Generator().manual_seed(99))
            return fmean(map(paid, prompts, written))

        return measure

    parts = equation(advantage={"name": "group_relative", "scale": "none"})
    measures = {"last": mean_of(last), "anywhere": mean_of(anywhere)}
    arms = [
        Arm("pays the last number", lambda seed: train(world(last), parts, measures, seed=seed)),
        Arm("pays a number anywhere", lambda seed: train(world(anywhere), parts, measures, seed=seed)),
    ]
    names = {"last": "last number right", "anywhere": "answer anywhere"}
    return Experiment("r: what is paid", arms, names, "last", -1, ["pays a number anywhere"])


def words(bias: float) -> tuple[World, Measure]:
    """Return a task of three tokens with one right completion for each of four prompts, and its exact accuracy."""
    contexts, length, vocabulary = 4, 3, 4
    start = torch.zeros(contexts * length, vocabulary + 1, dtype=torch.float64)
    start[:, vocabulary] = NEVER
    rights = [(prompt * length + n, (prompt + n) % vocabulary) for prompt in range(contexts) for n in range(length)]
    for place in rights:
        start[place] = bias

    def accuracy(logits: torch.Tensor) -> float:
        table = logits.softmax(1)
        probabilities = torch.stack([table[place] for place in rights]).view(contexts, length)
        return probabilities.prod(1).mean().item()

    def paid(prompt: int, completion: Tokens) -> float:
        return float(all(token == (prompt + n) % vocabulary for n, token in enumerate(completion)))

    first = range(0, contexts * length, length)
    return World(start, length, vocabulary, first, in_order(*start.shape), paid), accuracy


def advantage() -> Experiment:
    """Compare the reward itself with the reward less the mean of its group, where all completions are paid 2 more."""
    world, accuracy = words(1.0)
    shifted = replace(world, reward=lambda prompt, completion: 2 + world.reward(prompt, completion))

    def plain(rewards: torch.Tensor) -> torch.Tensor:
        """Âᵢ = rᵢ."""
        return rewards

    less_mean = equation(advantage={"name": "group_relative", "scale": "none"})
    no_baseline = replace(less_mean, advantage=Part("rlm_advantages", "plain", "lessons", plain).bind({}))

    def arm(label: str, task: World, parts: Equation) -> Arm:
        measures = {"accuracy": accuracy}
        return Arm(label, lambda seed: train(task, parts, measures, seed=seed, steps=40, prompts=4, group_size=4))

    arms = [
        arm("r − mean, paid 2 or 3", shifted, less_mean),
        arm("r − mean, paid 0 or 1", world, less_mean),
        arm("r, paid 2 or 3", shifted, no_baseline),
    ]
    return Experiment("Â: better than what", arms, {"accuracy": "accuracy"}, "accuracy", -1, ["r, paid 2 or 3"])


def importance() -> Experiment:
    """Compare ratios where all samples are of the initial policy: it often writes an answer that is paid little."""
    contexts, length, best, common = 1, 2, 1, 0
    start = torch.zeros(contexts * length, 5, dtype=torch.float64)
    start[:, common], start[:, best], start[:, 4] = 1.5, 0.5, NEVER

    def paid(_: int, completion: Tokens) -> float:
        return {(best, best): 1.0, (common, common): 0.2}.get(tuple(completion), 0.0)

    world = World(start, length, 4, [0], in_order(*start.shape), paid)

    def share(token: int) -> Measure:
        return lambda logits: logits.softmax(1)[:, token].view(contexts, length).prod(1).mean().item()

    measures = {"best": share(best), "common": share(common)}

    def arm(label: str, ratio: str | None, refresh: int) -> Arm:
        slots = {"policy_loss": "unclipped", "importance": ratio} if ratio else {}
        slots |= {"aggregator": "sequence_mean"} if ratio == "sequence_sum" else {"aggregator": "sequence_sum"}
        parts = equation(advantage="leave_one_out", **slots)
        return Arm(label, lambda seed: train(world, parts, measures, seed=seed, steps=100, rate=0.05, refresh=refresh))

    arms = [
        arm("own samples", None, 1),
        arm("samples of the start, w of the completion", "sequence_sum", 1000),
        arm("samples of the start, w of the token", "token", 1000),
        arm("samples of the start, no w", None, 1000),
    ]
    names = {"best": "answer that is paid 1", "common": "answer that is paid 0.2"}
    return Experiment("w: samples of another policy", arms, names, "best", -1, ["samples of the start, no w"])


def loss() -> Experiment:
    """Compare 16 updates per batch with and without the clip; the verifier errs in 30 % of its verdicts."""
    world, accuracy = words(1.0)

    def noisy(seed: int) -> World:
        draw = random.Random(seed)
        return replace(world, reward=lambda p, c: float(draw.random() < (0.7 if world.reward(p, c) else 0.3)))

    def arm(label: str, policy_loss: str, updates: int) -> Arm:
        parts = equation(advantage="group_relative", importance="token", policy_loss=policy_loss)
        measures = {"accuracy": accuracy}
        return Arm(
            label,
            lambda seed: train(noisy(seed), parts, measures, seed=seed, group_size=4, updates=updates, rate=0.2),
        )

    arms = [
        arm("clip, 16 updates", "clip", 16),
        arm("w · Â, 16 updates", "unclipped", 16),
        arm("w · Â, 1 update", "unclipped", 1),
    ]
    title = "ℓ: how far one batch may lead"
    return Experiment(title, arms, {"accuracy": "accuracy"}, "accuracy", -1, ["w · Â, 16 updates"])


def token_weights() -> Experiment:
    """Compare truncated completions that count as wrong with the same masked; accuracy is that of a larger limit."""
    needed, limit, later = [2, 8], 16, 64
    start = torch.tensor([[math.log(10), 0.0]], dtype=torch.float64)

    def paid(prompt: int, completion: Tokens) -> float:
        return float(completion[-1] == 1 and len(completion) > needed[prompt])

    world = World(start, limit, 1, [0] * len(needed), in_order(*start.shape), paid)

    def accuracy(logits: torch.Tensor) -> float:
        stay = logits[0].softmax(0)[0].item()
        return fmean(stay**need - stay**later for need in [*needed, 24])

    def length(logits: torch.Tensor) -> float:
        stay = logits[0].softmax(0)[0].item()
        return (1 - stay**later) / (1 - stay)

    measures = {"accuracy": accuracy, "length": length}

    def arm(label: str, *weights: str) -> Arm:
        parts = equation(advantage="leave_one_out", aggregator="fixed_length", token_weights=list(weights))
        return Arm(label, lambda seed: train(world, parts, measures, seed=seed, rate=0.05))

    arms = [arm("c = 1"), arm("c = 0 if truncated", "mask_truncated")]
    names = {"accuracy": "accuracy with 64 tokens", "length": "tokens with 64"}
    return Experiment("c: which tokens count", arms, names, "accuracy", 1, ["c = 0 if truncated"])


def aggregator() -> Experiment:
    """Compare aggregators on an answer with idle tokens, whose number may depend on whether it was right."""
    stay = math.log(15)
    rows = [[0.0, 0.0, NEVER, NEVER], [NEVER, NEVER, stay, 0.0], [NEVER, NEVER, stay, 0.0]]
    world = World(
        start=torch.tensor(rows, dtype=torch.float64),
        limit=64,
        end=3,
        first=[0],
        following=torch.tensor([[1, 2, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]]),
        reward=lambda _, completion: float(completion[0] == 0),
    )

    def length_after(row: int) -> Measure:
        def measure(logits: torch.Tensor) -> float:
            end = logits[row].softmax(0)[3].item()
            return (1 - (1 - end) ** 63) / end

        return measure

    measures = {"wrong": length_after(2), "right": length_after(1)}

    def arm(label: str, name: str) -> Arm:
        parts = equation(advantage={"name": "group_relative", "scale": "none"}, aggregator=name)
        return Arm(label, lambda seed: train(world, parts, measures, seed=seed, prompts=12, rate=0.02))

    arms = [
        arm("fixed_length (Dr. GRPO)", "fixed_length"),
        arm("token_mean (DAPO)", "token_mean"),
        arm("sequence_mean (GRPO)", "sequence_mean"),
    ]
    names = {"wrong": "tokens after a wrong answer", "right": "tokens after a right answer"}
    return Experiment("1/Z: what a token weighs", arms, names, "wrong", 1, ["sequence_mean (GRPO)"])


def penalty() -> Experiment:
    """Compare three estimators of the divergence in a KL penalty of the same coefficient."""
    world, accuracy = words(0.5)
    start = world.start.log_softmax(1)

    def divergence(logits: torch.Tensor) -> float:
        table = logits.log_softmax(1)
        return (table.exp() * (table - start)).sum().item() / len(world.first)

    def arm(label: str, estimator: str | None) -> Arm:
        penalties = [{"name": "kl", "beta": 0.3, "estimator": estimator}] if estimator else []
        parts = equation(advantage="leave_one_out", aggregator="sequence_sum", penalties=penalties)
        measures = {"kl": divergence, "accuracy": accuracy}
        return Arm(label, lambda seed: train(world, parts, measures, seed=seed, rate=0.05, steps=100))

    arms = [arm("no penalty", None), arm("k1 as a loss", "k1"), arm("k2", "k2"), arm("k3", "k3")]
    names = {"kl": "exact KL to the start, nats", "accuracy": "accuracy"}
    return Experiment("Ω: what a penalty holds", arms, names, "kl", -1, ["k2", "k3"])


def expectation() -> Experiment:
    """Compare sets of prompts: prompt n has n + 1 right tokens in a row, and all prompts share their states."""
    length, vocabulary = 10, 4
    start = torch.zeros(length, vocabulary + 1, dtype=torch.float64)
    start[:, vocabulary] = NEVER

    def world(asked: Sequence[int]) -> World:
        def paid(prompt: int, completion: Tokens) -> float:
            return float(not any(completion[: asked[prompt] + 1]))

        return World(start, length, vocabulary, [0] * len(asked), in_order(*start.shape), paid)

    measures: dict[str, Measure] = {"hardest": lambda logits: logits.softmax(1)[:, 0].prod().item()}

    def arm(label: str, asked: Sequence[int]) -> Arm:
        parts = equation(advantage="leave_one_out")
        return Arm(label, lambda seed: train(world(asked), parts, measures, seed=seed, steps=200))

    arms = [
        arm("all prompts", range(length)),
        arm("the hardest alone", [length - 1]),
        arm("the easiest alone", [0]),
    ]
    names = {"hardest": "accuracy on the hardest prompt"}
    return Experiment("E: which prompts", arms, names, "hardest", -1, ["the hardest alone", "the easiest alone"])


EXPERIMENTS = {
    "reward": reward,
    "advantage": advantage,
    "importance": importance,
    "loss": loss,
    "token_weights": token_weights,
    "aggregator": aggregator,
    "penalty": penalty,
    "expectation": expectation,
}


if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, PAGE, picture=PICTURE))
