"""ETTRL: the advantage against loops, the loss and its gradient against the formula."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, stdev

import torch
from rlm_intrinsic import entropy_reshaped, ettrl
from rlm_testing import conformance

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective
from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import slots_of

test_reshaped_laws = conformance("rlm_advantages", entropy_reshaped)

GROUP = torch.tensor([0, 1, 0, 1, 0])
REWARDS = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
LENGTHS = (3, 2, 1, 3, 2)
MASK = torch.arange(3) < torch.tensor(LENGTHS).unsqueeze(1)
ENTROPY = torch.rand(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1


def by_hand() -> list[float]:
    """Compute Y and Â of each completion with plain Python."""
    uncertain = [sum(row[:length]) / length for row, length in zip(ENTROPY.tolist(), LENGTHS, strict=True)]
    found = []
    for i, g in enumerate(GROUP.tolist()):
        same = [j for j, other in enumerate(GROUP.tolist()) if other == g]
        rewards = [REWARDS[j].item() for j in same]
        average = mean(uncertain[j] for j in same)
        y = 1 + (average - uncertain[i]) / average
        found.append(y * (REWARDS[i].item() - mean(rewards)) / (stdev(rewards) + 1e-4))
    return found


def test_loss_and_gradient_of_the_algorithm() -> None:
    """On policy the gradient of the clipped loss is that of −1/B Σᵢ 1/|yᵢ| Σₜ Âᵢ log π."""
    logp = -torch.rand(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logp.requires_grad_()
    advantages = entropy_reshaped(REWARDS, ENTROPY, GROUP, MASK)
    counts = {name: torch.tensor(5.0) for name in ("num_sequences", "num_sequences_all")}
    batch = Batch(group=GROUP, mask=MASK, old_logp=logp.detach(), advantages=advantages.unsqueeze(1), step=0, **counts)
    found = objective(replace(batch, logp=logp), Equation.from_slots(slots_of(ettrl, Registry())))
    reference = torch.tensor(by_hand(), dtype=torch.float64)
    weights = MASK / MASK.sum(1, keepdim=True) / 5
    torch.testing.assert_close(found, -(reference.unsqueeze(1) * weights).sum())
    (gradient,) = torch.autograd.grad(found, logp)
    torch.testing.assert_close(gradient, -reference.unsqueeze(1) * weights)
