"""A policy that is a table of logits, trained by the parts of the equation: 60 steps take a second.

Its expected reward is known or a mean over many samples, so that a curve is smooth, and ten seeds decide.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rlm_lab.convention_card import step_loss

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import score
from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import slots_of
from rlm_plugins.specs import Algorithm

Tokens = list[int]
Measure = Callable[[torch.Tensor], float]
Fields = Callable[[torch.Tensor, torch.Tensor, Batch], dict[str, torch.Tensor]]
"""Logits, with gradient in an update, the states (B, T), and the batch → further fields of the batch."""
NEVER = -30.0
"""A logit of what is never sampled."""


@dataclass(frozen=True)
class World:
    """A task of a table policy.

    Args:
        start: Logits (states, tokens) of the initial policy.
        limit: Most tokens of a completion.
        end: The token that ends a completion.
        contexts: Number of different prompts; a prompt is its number.
        state: The row of the table by prompt and tokens so far.
        reward: The reward by prompt and completion.
    """

    start: torch.Tensor
    limit: int
    end: int
    contexts: int
    state: Callable[[int, Tokens], int]
    reward: Callable[[int, Tokens], float]


def equation(**slots: Any) -> Equation:
    """Return an equation: REINFORCE with a token mean, and these slots in place of its own."""
    registry = Registry()
    base: Algorithm = registry.find("rlm_algorithms", "reinforce", where="algorithm").target
    return Equation.from_slots(slots_of(replace(base, **{"aggregator": "token_mean", **slots}), registry))


def sample(world: World, logits: torch.Tensor, prompts: Sequence[int], generator: torch.Generator) -> list[Tokens]:
    """Return one completion per prompt."""
    table = logits.detach().softmax(1)
    completions: list[Tokens] = [[] for _ in prompts]
    running = list(range(len(prompts)))
    for _ in range(world.limit):
        states = [world.state(prompts[row], completions[row]) for row in running]
        drawn = torch.multinomial(table[states], 1, generator=generator).squeeze(1).tolist()
        for row, token in zip(running, drawn, strict=True):
            completions[row].append(token)
        running = [row for row, token in zip(running, drawn, strict=True) if token != world.end]
        if not running:
            break
    return completions


def batch_of(
    world: World, prompts: Sequence[int], completions: Sequence[Tokens], group_size: int, step: int = 0
) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """Return the completions as a batch without log-probs, and states and tokens (B, T)."""
    width = max(map(len, completions))
    states = torch.zeros(len(prompts), width, dtype=torch.long)
    tokens = torch.zeros_like(states)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        for n, token in enumerate(completion):
            states[row, n], tokens[row, n] = world.state(prompt, completion[:n]), token
    lengths = torch.tensor([len(completion) for completion in completions])
    rewards = [world.reward(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]
    score = torch.tensor(rewards, dtype=torch.float64)
    batch = Batch(
        group=torch.arange(len(prompts)) // group_size,
        mask=torch.arange(width) < lengths.unsqueeze(1),
        truncated=torch.tensor([completion[-1] != world.end for completion in completions]),
        prompt_index=torch.tensor(prompts),
        max_completion_length=world.limit,
        step=step,
        completion_ids=list(completions),
        rewards=score,
        named_rewards={"accuracy": score},
    )
    return batch, states, tokens


def train(
    world: World,
    parts: Equation,
    measures: dict[str, Measure],
    *,
    seed: int,
    steps: int = 60,
    prompts: int = 8,
    group_size: int = 8,
    updates: int = 1,
    rate: float = 0.1,
    refresh: int = 1,
    stale: int = 0,
    fields: Fields = lambda logits, states, batch: {},
) -> dict[str, list[float]]:
    """Train a table and return each measure, and the `tokens` sampled so far, before training and after every step.

    Args:
        world: The task.
        parts: The equation; its reference policy is the initial one.
        measures: Functions of the logits.
        seed: Of prompts and samples; equal seeds draw equal prompts.
        steps: Batches.
        prompts: Groups per batch.
        group_size: Completions per group.
        updates: Optimizer steps per batch.
        rate: Of Adam.
        refresh: Batches after which the policy that samples is renewed.
        stale: It is renewed with the policy of so many renewals before; at first with the initial one.
        fields: Further fields of the batch, for scoring and for each update.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = world.start.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=rate)
    curves = {name: [measure(logits.detach())] for name, measure in measures.items()}
    curves["tokens"] = [0.0]
    behaviors = deque([world.start], maxlen=stale + 1)
    for step in range(steps):
        drawn = torch.randint(world.contexts, (prompts,), generator=generator).tolist()
        asked = [prompt for prompt in drawn for _ in range(group_size)]
        if step % refresh == 0:
            behaviors.append(logits.detach().clone())
        completions = sample(world, behaviors[0], asked, generator)
        batch, states, tokens = batch_of(world, asked, completions, group_size, step)
        now = _logp(logits.detach(), states, tokens, batch.mask)
        old = _logp(behaviors[0], states, tokens, batch.mask)
        reference = _logp(world.start, states, tokens, batch.mask)
        given = replace(batch, logp=now, old_logp=old, rollout_logp=old, ref_logp=reference)
        given = replace(given, entropy=_entropy(logits.detach(), states))
        scored = score(replace(given, **fields(logits.detach(), states, given)), parts)
        for _ in range(updates):
            logp, entropy = _logp(logits, states, tokens, batch.mask), _entropy(logits, states)
            now_given = replace(scored, logp=logp, entropy=entropy)
            loss = step_loss(replace(now_given, **fields(logits, states, given)), parts)
            optimizer.zero_grad()
            if loss.requires_grad:
                loss.backward()
                optimizer.step()
        curves["tokens"].append(curves["tokens"][-1] + sum(map(len, completions)))
        for name, measure in measures.items():
            curves[name].append(measure(logits.detach()))
    return curves


def _logp(logits: torch.Tensor, states: torch.Tensor, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(1)[states, tokens].where(mask, 0.0)


def _entropy(logits: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    table = logits.log_softmax(1)
    return -(table.exp() * table).sum(1)[states]
