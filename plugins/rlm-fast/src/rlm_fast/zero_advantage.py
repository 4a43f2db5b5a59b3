"""Check by automatic differentiation on a synthetic batch whether zero-advantage completions contribute any gradient.

A group with equal rewards has zero advantage. Most losses have no gradient there, so neither pass over such a
completion changes anything. A KL term, an entropy bonus, an imitation loss or a statistic over completions does.
Parts are not listed by name: the loss itself is differentiated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import torch

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective
from rlm_plugins.errors import PartError
from rlm_plugins.rollout.group_layout import POLICY

_LEAVES = ("logp", "entropy", "values")
_REWARDS = (-1e3, -1.0, 0.0, 0.5, 1.0, 1e3)
"""Rewards of zero-advantage completions: a term may apply to correct ones only, or to wrong ones only."""


def zero_advantage_has_no_gradient(equation: Equation, step: int, sources: Iterable[str] = ()) -> bool:
    """Return True if completions with advantage 0 have no gradient and do not change that of the others.

    A term that raises on the synthetic batch, such as one with a tensor on another device, counts as using them.
    """
    try:
        return equation.is_per_sequence and _is_independent(equation, *_synthetic_batch(step, sources))
    except (PartError, RuntimeError):
        return False


def _is_independent(equation: Equation, batch: Batch, zero: torch.Tensor) -> bool:
    """Return True if the sequences marked in `zero` (B,) have no gradient and leave the others' as it is."""
    gradients = _gradients(equation, batch)
    if any(x[zero].any() for x in gradients):
        return False
    column = zero.unsqueeze(1)
    changed = replace(batch, logp=batch.logp.where(~column, batch.old_logp), entropy=batch.entropy * ~column)
    # A statistic over the batch would carry changed log-probs into the gradients of the others.
    changed_gradients = _gradients(equation, changed)
    return all(torch.equal(x[~zero], y[~zero]) for x, y in zip(gradients, changed_gradients, strict=True))


def _synthetic_batch(step: int, sources: Iterable[str]) -> tuple[Batch, torch.Tensor]:
    """Build a batch of two groups, and return which completions have zero advantage (B,).

    The second group has zero advantage, with every reward, both finished and truncated.
    """
    rng, outcomes = torch.Generator().manual_seed(0), list(product(_REWARDS, (False, True)))
    zero = torch.tensor([False, False] + [True] * len(outcomes))
    count, truncated = len(zero), torch.tensor([False, False] + [is_truncated for _, is_truncated in outcomes])
    num_sequences = torch.tensor(float(count))

    def random_logprobs() -> torch.Tensor:
        return -torch.rand(count, 3, generator=rng)

    batch = Batch(
        group=zero.long(),
        mask=torch.tensor([1, 1, 0]).bool() | truncated.unsqueeze(1),
        truncated=truncated,
        sources={name: torch.ones(count, dtype=torch.bool) for name in (POLICY, *sources)},
        max_completion_length=3,
        step=step,
        rewards=torch.tensor([0.7, -0.7] + [reward for reward, _ in outcomes]),
        advantages=torch.tensor([0.7, -0.7] + [0.0] * len(outcomes)).unsqueeze(1),
        expected_logp=random_logprobs()[:, 0],
        num_tokens=3 * num_sequences,
        num_sequences=num_sequences,
        num_sequences_all=num_sequences,
        num_micro_batches=torch.tensor(1.0),
    )
    for name in ("logp", "old_logp", "ref_logp", "rollout_logp", "entropy", "values", "old_values", "returns"):
        setattr(batch, name, random_logprobs())
    return batch, zero


def _gradients(equation: Equation, batch: Batch) -> list[torch.Tensor]:
    """Return the gradient of the loss in log-probs, entropies and values."""
    leaves = {name: getattr(batch, name).detach().requires_grad_() for name in _LEAVES}
    loss = objective(replace(batch, **leaves), equation)
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient in zip(leaves.values(), gradients, strict=True)
    ]
