"""Equations and batches small enough to compute by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from rlm_testing.strategies import at_two_tokens

from rlm_plugins.builtin import advantages, aggregators, policy_losses
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import build_step_batch, objective, score
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.report.objective_text import slots_of

REGISTRY = Registry()


def part(hook: str, target: Any, **knobs: Any) -> Bound:
    return _part(hook, target).bind(knobs)


@cache
def _part(hook: str, target: Any) -> Part:
    """Return a part, always the same one, since it keeps the schema of its knobs."""
    return Part(hook, target.__name__, "test", target)


def equation(**parts: Any) -> Equation:
    """Return REINFORCE with the reward minus its mean and a token mean; `parts` replace slots by name."""
    plain = {
        "advantage": part("rlm_advantages", advantages.group_relative, scale="none"),
        "policy_loss": part("rlm_policy_losses", policy_losses.reinforce),
        "aggregator": part("rlm_aggregators", aggregators.token_mean),
    }
    return Equation(**plain | parts)


def scoring(
    rewards: list[float], group: list[int] | None = None, lengths: list[int] | None = None, **more: Any
) -> Batch:
    lengths = lengths or [2] * len(rewards)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    groups = torch.tensor(group or [0] * len(rewards))
    return Batch(group=groups, mask=mask, rewards=torch.tensor(rewards), max_completion_length=8, **more)


def loss_batch(**more: Any) -> Batch:
    """Return a batch of two completions with three and one tokens, and values that are easy to compute with."""
    fields: dict[str, Any] = {
        "group": torch.tensor([0, 0]),
        "mask": torch.tensor([[True, True, True], [True, False, False]]),
        "truncated": torch.tensor([False, True]),
        "max_completion_length": 8,
        "advantages": torch.tensor([[1.0], [-2.0]]),
        "logp": torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0]], requires_grad=True),
        "old_logp": torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0]]),
        "num_tokens": torch.tensor(4.0),
        "num_sequences": torch.tensor(2.0),
        "num_micro_batches": torch.tensor(1.0),
    }
    return Batch(**fields | more)


# ---- an algorithm, from rewards to the gradient


def equation_of(name: str, **changes: Any) -> Equation:
    """Return the equation of an algorithm; `changes` set knobs of the part in a slot (a mapping) or replace it."""
    slots = slots_of(REGISTRY.find("rlm_algorithms", name).target, REGISTRY)
    symbols = Equation.from_slots(slots)
    for slot, change in changes.items():
        old = getattr(symbols, slot)
        if isinstance(change, dict):
            change = [turned(one, change) for one in old] if isinstance(old, list) else turned(old, change)
        symbols = replace(symbols, **{slot: change})
    return symbols


def turned(old: Bound, knobs: dict[str, Any]) -> Bound:
    """Return the part with other values of some knobs."""
    new = old.part.bind(old.knobs | knobs)
    return replace(old, knobs=new.knobs, target=new.target)


def scored(batch: Batch, symbols: Equation) -> Batch:
    """Return the scored batch as a whole optimizer step, with its own counts and step batch."""
    found = score(batch, symbols)
    places = torch.arange(len(found.mask)) if found.step_batch_rows is None else found.step_batch_rows
    window, (rows,) = build_step_batch([found], [places])
    found = replace(found, step_batch=window, step_batch_rows=rows)
    counts = {
        "num_tokens": found.mask.sum(),
        "num_sequences": found.mask.any(1).sum(),
        "num_micro_batches": torch.tensor(1),
    }
    return replace(found, **{name: count.clamp(min=1).double() for name, count in counts.items()})


def loss_and_gradient(batch: Batch, symbols: Equation) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of a scored batch and its gradient with respect to log π."""
    logp = batch.logp.detach().clone().requires_grad_()
    loss = objective(at_two_tokens(replace(batch, logp=logp, rollout_weight=None)), symbols)
    return loss.detach(), torch.autograd.grad(loss, logp)[0]


def loss_and_gradient_from_rewards(batch: Batch, symbols: Equation) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of an unscored batch and its gradient with respect to log π."""
    return loss_and_gradient(scored(batch, symbols), symbols)
