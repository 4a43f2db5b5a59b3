"""Â of steps from Monte-Carlo values of the states between them (hook ``rlm_advantages``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from jaxtyping import Bool, Float, Int
from pydantic import PositiveInt

from rlm_plugins.equation.batch import Generate, Log, RewardsOf
from rlm_plugins.equation.statistics import whiten as whiten_over_mask
from rlm_plugins.lazy import torch
from rlm_process.knobs import Steps
from rlm_process.state_values import ContinuationSampler, State, cut_into_states, mean_values, sample_continuations
from rlm_process.step_boundaries import step_cutter


def vine(
    token_rewards: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    completion_ids: Sequence[Sequence[int]],
    prompts: Sequence[Any],
    inputs: Sequence[Any],
    generate: Generate,
    rewards_of: RewardsOf,
    tokenizer: Any,
    log: Log,
    *,
    steps: Steps = "lines",
    continuations: PositiveInt = 9,
    first: PositiveInt | None = None,
    whiten: bool = False,
) -> Float[torch.Tensor, "B T"]:
    """Compute each step's gain in value: the sampled value of the state after it minus that of the state before.

    Âᵢₜ = rₖ + Vₖ₊₁ − Vₖ for every token t of step k: Vₖ is the mean reward of K continuations from the state
    before step k, and 0 after the last. VinePPO, arXiv 2410.01679: K is `continuations`, 9 there.

    rₖ is the sum of the step's token rewards; the last step includes the reward of the completion. Neither a critic nor
    a comparison within groups is needed: a group may have one completion, and equal rewards still have a gradient.
    `steps` defines a step. With `first`, only the first states of a completion are evaluated, including the prompt; the
    step after the last of these includes all later steps. `whiten`: over all trained tokens of the batch, as in the
    authors' settings. A state shared by completions of a group is evaluated once. Logged: `advantage/continuations`,
    their number, and `advantage/shared_states`, the share of states that required none.

    Pitfalls: the cost is (states · K) continuations per generation batch. Continuations are scored by the rewards
    without shapers, unlike the completion itself. They have a single turn, without replies of an environment.

    >>> from rlm_process.knobs import Every
    >>> inputs = dict(prompts=["?"], inputs=[{}], tokenizer=None, log=lambda name, x: None, steps=Every(every=2))
    >>> calls = dict(generate=lambda p, starts: [[9]] * len(p), rewards_of=lambda p, ids, xs: torch.ones(len(ids)))
    >>> vine(torch.tensor([[0.0, 0.0, 0.5]]), torch.ones(1, 3).bool(), torch.zeros(1), [[4, 5, 6]], **inputs, **calls)
    tensor([[ 0.0000,  0.0000, -0.5000]])
    """
    cut = step_cutter(steps, tokenizer, where="advantage: vine.steps")
    ends_of, before = cut_into_states(group.tolist(), completion_ids, cut)
    selected = [states[:first] for states in before]
    scores = sample_continuations(
        selected, ContinuationSampler(prompts, inputs, generate, rewards_of), continuations=continuations
    )
    _log_cost(log, selected, scores, continuations)
    values, token_rewards = mean_values(scores), token_rewards.where(mask, 0.0)
    advantages = torch.zeros_like(token_rewards)
    for index, (states, ends) in enumerate(zip(before, ends_of, strict=True)):
        spans = list(pairwise((0, *ends)))
        step_rewards = [token_rewards[index, a:b].sum().item() for a, b in spans]
        gains = step_advantages(step_rewards, [values.get(state) for state in states])
        for (a, b), gain in zip(spans, gains, strict=True):
            advantages[index, a:b] = gain
    return whiten_over_mask(advantages, mask) if whiten else advantages.where(mask, 0.0)


def _log_cost(
    log: Log, selected: Sequence[Sequence[State]], scores: dict[State, list[float]], continuations: int
) -> None:
    """Log the number of continuations, and the share of states that were shared."""
    num_states = sum(map(len, selected))
    log("continuations", float(len(scores) * continuations))
    log("shared_states", 1 - len(scores) / max(1, num_states))
    log("steps", num_states / max(1, len(selected)))


def step_advantages(rewards: Sequence[float], values: Sequence[float | None]) -> list[float]:
    """Compute the advantage of each step.

    Âₖ = rₖ + Vₖ₊₁ − Vₖ. VinePPO, arXiv 2410.01679 §4.

    Args:
        rewards: Reward of each step.
        values: Value of the state before each step; 0 after the last. None: unknown. Then it is replaced by the step's
            reward plus the value of the next state; if all later values are unknown, this is the remaining return.

    Returns:
        Advantage of each step.

    >>> step_advantages([0.0, 1.0], [0.25, 0.75])
    [0.5, 0.25]
    >>> step_advantages([0.0, 0.0, 1.0], [0.5, 0.75, None])  # an unknown value gives the last step an advantage of 0
    [0.25, 0.25, 0.0]
    """
    advantages: list[float] = []
    next_value = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        value_before = reward + next_value if value is None else value
        advantages.append(reward + next_value - value_before)
        next_value = value_before
    return advantages[::-1]
