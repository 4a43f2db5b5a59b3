"""Â of steps, by having the policy write on from the states between them (hook ``rlm_advantages``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from jaxtyping import Bool, Float, Int
from pydantic import PositiveInt

from rlm_plugins.batch import Generate, Log, RewardsOf
from rlm_plugins.functional.statistics import whiten as whitened
from rlm_plugins.lazy import torch
from rlm_process.credit import step_advantages
from rlm_process.knobs import Steps
from rlm_process.sampled import Questions, State, means, sampled, states
from rlm_process.steps import cutter


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
    """What a step added: the value of the state after it, less that of the state before, each value sampled.

    Âᵢₜ = rₖ + Vₖ₊₁ − Vₖ for every token t of step k: Vₖ is the mean reward of K answers written on from the state
    before step k, and 0 after the last. VinePPO, arXiv 2410.01679: K is `continuations`, 9 there.

    rₖ is what the tokens of the step were paid, the row's own reward in the last one. No critic, and no comparison:
    a group may be of one, and equal rewards are no reason to learn nothing. `steps` says what a step is; with `first`
    only so many states of a row are valued, the prompt among them, and the step after the last of these answers for
    all that follow. `whiten`: over all trained tokens of the batch, as the authors' settings say. A state that several
    rows of a group came through is asked for once; how many answers were written on is `advantage/continuations` in
    the log, the share of states that needed none `advantage/shared_states`.

    Pitfalls: the cost is (states · K) answers per generation. Continuations are judged by the rewards as they are:
    a shaper bends the row's own reward and not theirs. They go on as one turn: no world answers in between.

    >>> from rlm_process.knobs import Every
    >>> given = dict(prompts=["?"], inputs=[{}], tokenizer=None, log=lambda name, x: None, steps=Every(every=2))
    >>> asked = dict(generate=lambda p, starts: [[9]] * len(p), rewards_of=lambda p, ids, rows: torch.ones(len(ids)))
    >>> vine(torch.tensor([[0.0, 0.0, 0.5]]), torch.ones(1, 3).bool(), torch.zeros(1), [[4, 5, 6]], **given, **asked)
    tensor([[ 0.0000,  0.0000, -0.5000]])
    """
    last = list(map(cutter(steps, tokenizer, where="advantage: vine.steps"), completion_ids))
    before = states(group.tolist(), completion_ids, last)
    asked = [line[:first] for line in before]
    scores = sampled(asked, Questions(prompts, inputs, generate, rewards_of), continuations=continuations)
    _tell(log, asked, scores, continuations)
    values, token_rewards = means(scores), token_rewards.where(mask, 0.0)
    advantages = torch.zeros_like(token_rewards)
    for row, (line, cuts) in enumerate(zip(before, last, strict=True)):
        spans = list(pairwise((0, *cuts)))
        paid = [token_rewards[row, a:b].sum().item() for a, b in spans]
        for (a, b), x in zip(spans, step_advantages(paid, [values.get(state) for state in line]), strict=True):
            advantages[row, a:b] = x
    return whitened(advantages, mask) if whiten else advantages.where(mask, 0.0)


def _tell(log: Log, asked: Sequence[Sequence[State]], scores: dict[State, list[float]], continuations: int) -> None:
    """What it cost, and what sharing saved."""
    met = sum(map(len, asked))
    log("continuations", float(len(scores) * continuations))
    log("shared_states", 1 - len(scores) / max(1, met))
    log("steps", met / max(1, len(asked)))
