"""Equations and batches small enough to reckon with by hand."""

from __future__ import annotations

from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.builtin import advantages, aggregators, policy_losses
from rlm_plugins.registry.parts import Bound, Part
from rlm_plugins.step import Equation


def part(hook: str, target: Any, **knobs: Any) -> Bound:
    return Part(hook, target.__name__, "test", target).bind(knobs)


def equation(**parts: Any) -> Equation:
    """Centred rewards, REINFORCE, token mean; anything else by name."""
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


def learning(**more: Any) -> Batch:
    """Two rows of three tokens, the second one shorter, everything else easy to reckon with."""
    fields: dict[str, Any] = {
        "group": torch.tensor([0, 0]),
        "mask": torch.tensor([[True, True, True], [True, False, False]]),
        "truncated": torch.tensor([False, True]),
        "max_completion_length": 8,
        "advantages": torch.tensor([[1.0], [-2.0]]),
        "logp": torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0]], requires_grad=True),
        "old_logp": torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0]]),
        "tokens": torch.tensor(4.0),
        "rows": torch.tensor(2.0),
        "micro_batches": torch.tensor(1.0),
    }
    return Batch(**fields | more)
