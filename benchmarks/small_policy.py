"""A policy that is a table of logits, trained by the parts of the equation: 60 steps take a second.

Its expected reward is known or a mean over many samples, so that a curve is smooth, and ten seeds decide.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import term_counts, update_part
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective, score, with_own_step_batch
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.report.objective_text import slots_of
from rlm_plugins.specs import Algorithm

Tokens = list[int]
Measure = Callable[[torch.Tensor], float]
Fields = Callable[[torch.Tensor, torch.Tensor, Batch], dict[str, torch.Tensor]]
"""Logits, with gradient in an update, their rows (B, T), and the batch → further fields of the batch."""
NEVER = -30.0
"""A logit of what is never sampled."""


@dataclass(frozen=True)
class World:
    """A task of a table policy: a graph of states, in each of which it writes one token.

    Args:
        start: Logits (states, tokens) of the initial policy.
        limit: Most tokens of a completion.
        end: The token that ends a completion.
        first: The first state of each prompt; a prompt is its number.
        following: The next state (states, tokens).
        reward: The reward by prompt and completion.
        observed: States whose token is written by the environment, by `start`, and is not trained on.
        rows: The row of the logits that a state reads; None: its own.
        asked: Prompts of training, the first so many; None: all. The others are those of a part or rollout source.
    """

    start: torch.Tensor
    limit: int
    end: int
    first: Sequence[int]
    following: torch.Tensor
    reward: Callable[[int, Tokens], float]
    observed: frozenset[int] = frozenset()
    rows: torch.Tensor | None = None
    asked: int | None = None


def in_order(states: int, tokens: int) -> torch.Tensor:
    """Return `following` of a world whose states are visited one after the other, whatever is written."""
    return (torch.arange(states) + 1).clamp(max=states - 1).unsqueeze(1).expand(states, tokens)


def equation(**slots: Any) -> Equation:
    """Return an equation: REINFORCE with the group's mean as baseline, a token mean, and these slots in their place."""
    return algorithm("reinforce", **{"aggregator": "token_mean", **slots})


def without_baseline() -> Equation:
    """Return the equation of REINFORCE with Âᵢ = rᵢ: with rewards of 0 and 1, supervised training on right samples."""
    part = Part("rlm_advantages", "rewards", "small_policy", lambda rewards: rewards).bind({})
    return replace(equation(), advantage=part)


def algorithm(name: str, **slots: Any) -> Equation:
    """Return the equation of a published algorithm, with these slots in place of its own."""
    registry = Registry()
    row: Algorithm = registry.find("rlm_algorithms", name, where="algorithm").target
    return Equation.from_slots(slots_of(replace(row, **slots), registry))


def sample(
    world: World,
    logits: torch.Tensor,
    prompts: Sequence[int],
    generator: torch.Generator,
    prefixes: Sequence[Tokens] | None = None,
) -> list[Tokens]:
    """Return one completion per prompt, or what follows each prefix."""
    table = logits.detach().softmax(1)
    table = table if world.rows is None else table[world.rows]
    starts = prefixes or [[] for _ in prompts]
    states = torch.tensor([_state_after(world, prompt, start) for prompt, start in zip(prompts, starts, strict=True)])
    completions: list[Tokens] = [[] for _ in prompts]
    limits = [world.limit - len(start) for start in starts]
    running = [row for row, start in enumerate(starts) if limits[row] and world.end not in start]
    states = states[running]
    while running:
        drawn = torch.multinomial(table[states], 1, generator=generator).squeeze(1)
        states, tokens = world.following[states, drawn], drawn.tolist()
        for row, token in zip(running, tokens, strict=True):
            completions[row].append(token)
        left = [
            n
            for n, (row, token) in enumerate(zip(running, tokens, strict=True))
            if token != world.end and len(completions[row]) < limits[row]
        ]
        if len(left) < len(running):
            running, states = [running[n] for n in left], states[left]
    return completions


def _state_after(world: World, prompt: int, prefix: Tokens) -> int:
    state = world.first[prompt]
    for token in prefix:
        state = int(world.following[state, token])
    return state


def batch_of(
    world: World, prompts: Sequence[int], completions: Sequence[Tokens], group_size: int, step: int = 0
) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """Return the completions as a batch without log-probs, and rows of the logits and tokens (B, T)."""
    lengths = torch.tensor([len(completion) for completion in completions])
    width = int(lengths.max())
    tokens = torch.tensor([[*completion, *[0] * (width - len(completion))] for completion in completions])
    columns = [torch.tensor([world.first[prompt] for prompt in prompts])]
    for n in range(width - 1):
        columns.append(world.following[columns[-1], tokens[:, n]])
    states = torch.stack(columns, 1)
    mask = torch.arange(width) < lengths.unsqueeze(1)
    for state in world.observed:
        mask &= states != state
    rewards = [world.reward(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]
    score = torch.tensor(rewards, dtype=torch.float64)
    batch = Batch(
        group=torch.arange(len(prompts)) // group_size,
        mask=mask,
        truncated=torch.tensor([completion[-1] != world.end for completion in completions]),
        prompt_index=torch.tensor(prompts),
        max_completion_length=world.limit,
        step=step,
        completion_ids=list(completions),
        prompts=list(prompts),
        prompt_ids=[[prompt] for prompt in prompts],
        inputs=[{} for _ in prompts],
        rewards=score,
        named_rewards={"accuracy": score},
        log=lambda name, x: None,
    )
    return batch, states if world.rows is None else world.rows[states], tokens


@dataclass
class Policy:
    """A table of logits with what parts call: continuations, rewards, log-probs.

    Args:
        world: The task.
        logits: The table that samples (states, tokens).
        generator: Of samples.
        fields: Further fields of the batch.
        num_tokens: Tokens generated so far, without those of the environment.
    """

    world: World
    logits: torch.Tensor
    generator: torch.Generator
    fields: Fields
    num_tokens: int = 0

    def generate(self, prompts: Sequence[int], prefixes: Sequence[Tokens] | None = None) -> list[Tokens]:
        """Return completions, or what follows each prefix."""
        completions = sample(self.world, self.logits, prompts, self.generator, prefixes)
        self.num_tokens += sum(map(len, completions))
        if self.world.observed:
            starts = prefixes or [[]] * len(prompts)
            for prompt, start, rest in zip(prompts, starts, completions, strict=True):
                state = _state_after(self.world, prompt, start)
                for token in rest:
                    self.num_tokens -= state in self.world.observed
                    state = int(self.world.following[state, token])
        return completions

    def rewards_of(self, prompts: Sequence[int], completions: Sequence[Tokens], _: Sequence[Any]) -> torch.Tensor:
        """Return the reward of each completion."""
        return torch.tensor([self.world.reward(*pair) for pair in zip(prompts, completions, strict=True)])

    def prompt_ids(self, prompts: Sequence[int]) -> list[Tokens]:
        """Return each prompt as one token."""
        return [[prompt] for prompt in prompts]

    def token_statistics(
        self, prompt_ids: Sequence[Tokens], completions: Sequence[Tokens]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-prob and entropy of each token (B, T)."""
        batch, states, tokens = batch_of(self.world, [prompt for (prompt,) in prompt_ids], completions, 1)
        return _logp(self.logits, states, tokens, batch.mask), _entropy(self.logits, states)

    def rollout(self, source: Any, prompts: Sequence[int], group_size: int, seed: int, step: int) -> dict[str, Any]:
        """Return columns: a completion per prompt; a rollout source may have prompts, scores and roles of its own."""
        if source is None:
            return {"completion_ids": self.generate(prompts)}
        given = {
            "prompts": prompts,
            "inputs": [{} for _ in prompts],
            "source_index": [n % group_size for n in range(len(prompts))],
            "generate": self.generate,
            "tokenizer": None,
            "trainer": self,
            "seed": seed,
            "step": step,
        }
        named = inspect.signature(source).parameters
        columns: dict[str, Any] = source(**{name: given[name] for name in named})
        return columns


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
    critic_rate: float = 0.0,
    source: Any = None,
    model: torch.nn.Module | None = None,
    budget: int | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
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
        rate: Of the optimizer.
        refresh: Batches after which the policy that samples is renewed.
        stale: It is renewed with the policy of so many renewals before; at first with the initial one.
        critic_rate: Rate of a table of values, which starts at 0; without a rate there is no critic.
        source: A rollout source; None: independent completions.
        model: A module without arguments that returns the table, and at first `start`; None: the table is trained.
        budget: Generated tokens after which training ends, in place of `steps`.
        optimizer: Its class.
        fields: Further fields of the batch, for scoring and for each update.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = [world.start.clone().requires_grad_()] if model is None else list(model.parameters())
    table = model or (lambda: weights[0])
    values = torch.zeros(len(world.start), dtype=torch.float64, requires_grad=bool(critic_rate))
    tables = [{"params": weights, "lr": rate}] + [{"params": [values], "lr": critic_rate}] * bool(critic_rate)
    descent = optimizer(tables, lr=rate)
    curves = {name: [measure(table().detach())] for name, measure in measures.items()}
    curves["tokens"] = [0.0]
    behaviors = deque([world.start], maxlen=stale + 1)
    policy = Policy(world, world.start, generator, fields)
    for part in parts.parts():
        for auxiliary in getattr(part.target, "_models", ()):
            auxiliary.policy = policy
    for step in count():
        if (step == steps) if budget is None else (policy.num_tokens >= budget):
            return curves
        drawn = torch.randint(world.asked or len(world.first), (prompts,), generator=generator).tolist()
        asked = [prompt for prompt in drawn for _ in range(group_size)]
        if step % refresh == 0:
            behaviors.append(table().detach().clone())
        policy.logits = behaviors[0]
        columns = policy.rollout(source, asked, group_size, seed, step)
        given = _batch_of_columns(world, asked, columns, group_size, step)
        _update(policy, parts, given, (table, values), descent, updates)
        curves["tokens"].append(float(policy.num_tokens))
        for name, measure in measures.items():
            curves[name].append(measure(table().detach()))
    raise AssertionError


def _batch_of_columns(
    world: World, prompts: Sequence[int], columns: dict[str, Any], group_size: int, step: int
) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """Return `batch_of` with the prompts, the scores, the roles and the mask of a rollout source that has them."""
    prompts = [prompt for (prompt,) in columns.get("prompt_ids", ())] or prompts
    batch, states, tokens = batch_of(world, prompts, columns["completion_ids"], group_size, step)
    if "score" in columns:
        score, role = (torch.tensor(columns[name], dtype=torch.float64) for name in ("score", "role"))
        trained = torch.tensor([any(row) for row in columns["mask"]]).unsqueeze(1)
        batch = replace(batch, rewards=score, named_rewards={"role": role}, mask=batch.mask & trained)
    return batch, states, tokens


def _update(
    policy: Policy,
    parts: Equation,
    given: tuple[Batch, torch.Tensor, torch.Tensor],
    tables: tuple[Callable[[], torch.Tensor], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    updates: int,
) -> None:
    """Score a batch and take the optimizer steps on it."""
    (batch, states, tokens), (table, values) = given, tables
    logits = table().detach()
    old = _logp(policy.logits, states, tokens, batch.mask)
    before = values.detach()[states]
    batch = replace(
        batch,
        logp=_logp(logits, states, tokens, batch.mask),
        old_logp=old,
        rollout_logp=old,
        ref_logp=_logp(policy.world.start, states, tokens, batch.mask),
        entropy=_entropy(logits, states),
        values=before,
        old_values=before,
        generate=policy.generate,
        rewards_of=policy.rewards_of,
        logprobs_of=lambda prompts, completions: policy.token_statistics(prompts, completions)[0],
        tokenizer=policy,  # steps of a fixed number of tokens decode nothing
    )
    scored = score(replace(batch, **policy.fields(logits, states, batch)), parts)
    for part in parts.parts():
        update_part(part, scored)
    for _ in range(updates):
        logits = table()
        logp, entropy = _logp(logits, states, tokens, batch.mask), _entropy(logits, states)
        now = replace(scored, logp=logp, entropy=entropy, values=values[states])
        loss = _loss(replace(now, **policy.fields(logits, states, now)), parts)
        optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
            optimizer.step()


def _loss(scored: Batch, parts: Equation) -> torch.Tensor:
    """Return the loss of a scored batch that is one micro-batch."""
    counted = replace(
        with_own_step_batch(scored),
        num_tokens=scored.mask.sum().double(),
        num_sequences=scored.mask.any(1).sum().double(),
        num_sequences_all=torch.tensor(len(scored.mask)).double(),
        num_micro_batches=torch.tensor(1.0).double(),
        term_counts=term_counts(scored, parts.terms()),
    )
    return objective(counted, parts)


class SameLength(torch.optim.SGD):
    """SGD whose every update has the same length, so that arms differ in its direction alone."""

    def step(self, closure: Any = None) -> Any:
        """Scale the gradient to the length 1, and take a step."""
        weights = [weight for group in self.param_groups for weight in group["params"] if weight.grad is not None]
        norm = torch.stack([weight.grad.norm() for weight in weights]).norm().clamp(min=1e-12)
        for weight in weights:
            weight.grad /= norm
        return super().step(closure)


def _logp(logits: torch.Tensor, states: torch.Tensor, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(1)[states, tokens].where(mask, 0.0)


def _entropy(logits: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    table = logits.log_softmax(1)
    return -(table.exp() * table).sum(1)[states]
