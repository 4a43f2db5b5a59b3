"""The algorithms RLSC, EM-FT and ETTRL: losses and gradients against formulas, and the advantage against loops."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, stdev

import torch
from rlm_intrinsic import em_ft, entropy_reshaped, ettrl, self_confidence, token_entropy_loss
from rlm_testing import conformance

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective
from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import slots_of

test_laws = conformance("rlm_policy_losses", self_confidence)
test_entropy_laws = conformance("rlm_policy_losses", token_entropy_loss)
test_reshaped_laws = conformance("rlm_advantages", entropy_reshaped)


def test_gradient_ascends_the_probability_that_two_samples_agree() -> None:
    """E_y[p(y) ∇ log p(y)] = ½ ∇ Σ p(y)²: all four completions of two tokens, weighted by their probability."""
    logits = torch.tensor([[0.3, -0.2], [0.9, 0.1], [-0.4, 0.5]], dtype=torch.float64, requires_grad=True)
    table = logits.log_softmax(1)  # first token; second after 0; second after 1
    completions = [(a, b) for a in (0, 1) for b in (0, 1)]
    logp = torch.stack([torch.stack([table[0, a], table[1 + a, b]]) for a, b in completions])
    probability = logp.sum(1).exp()
    loss = self_confidence(logp, logp.detach(), torch.ones(4, 2, dtype=torch.bool), alpha=0.0).sum(1)
    (actual,) = torch.autograd.grad((probability.detach() * loss).sum(), logits, retain_graph=True)
    (expected,) = torch.autograd.grad(-0.5 * (probability**2).sum(), logits)
    torch.testing.assert_close(actual, expected)


def test_entropy_minimization_descends_the_entropy() -> None:
    logits = torch.tensor([[[0.5, -0.5, 0.1], [2.0, 0.0, 0.0]]], dtype=torch.float64, requires_grad=True)
    logp = logits.log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    mask = torch.tensor([[True, False]])
    batch = Batch(
        group=torch.zeros(1).long(), mask=mask, advantages=torch.zeros(1, 1), step=0, num_tokens=torch.tensor(1.0)
    )
    loss = objective(
        replace(batch, logp=logp[..., 0], entropy=entropy), Equation.from_slots(slots_of(em_ft, Registry()))
    )
    (actual,) = torch.autograd.grad(loss, logits)
    p = logits.detach()[0, 0].softmax(-1)
    expected = -p * (p.log() + entropy[0, 0].detach())
    torch.testing.assert_close(actual[0, 0], expected)
    assert not actual[0, 1].any()


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
