"""Whether rows without advantage teach nothing: asked of the equation itself, on a batch that is made up.

A group whose answers were equally good has no advantage. Most losses then have no gradient there, so neither the
forward nor the backward pass of such a row changes anything. But a KL term, an entropy bonus, an imitation loss or a
statistic over rows does. No list of parts is kept: the loss is differentiated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.speed.regroup import counts_by_row
from rlm_plugins.step import Equation, objective
from rlm_plugins.training.sharing import POLICY

_LEAVES = ("logp", "entropy", "values")


def silent(equation: Equation, step: int, sources: Iterable[str] = ()) -> bool:
    """Whether rows with advantage 0 add no gradient, and leave that of the others alone whatever they say.

    Args:
        equation: The parts, with their coefficients as they are now.
        step: Optimiser steps done.
        sources: Labels of those who write.
    """
    if not counts_by_row(equation):
        return False
    made, dead = _made_up(step, sources)
    before = _gradients(equation, made)
    if any(x[dead].any() for x in before):
        return False
    mute = dead.unsqueeze(1)
    after = _gradients(
        equation, replace(made, logp=made.logp.where(~mute, made.old_logp), entropy=made.entropy * ~mute)
    )
    return all(torch.equal(x[~dead], y[~dead]) for x, y in zip(before, after, strict=True))


def _made_up(step: int, sources: Iterable[str]) -> tuple[Batch, torch.Tensor]:
    """Four rows of two groups, of which the second has no advantage; and which rows those are (B,)."""
    draw = torch.Generator().manual_seed(0)

    def some() -> torch.Tensor:
        return -torch.rand(4, 3, generator=draw)

    dead, one = torch.tensor([False, False, True, True]), torch.tensor(4.0)
    made = Batch(
        group=torch.tensor([0, 0, 1, 1]),
        mask=torch.ones(4, 3, dtype=torch.bool),
        truncated=torch.zeros(4, dtype=torch.bool),
        sources={name: torch.ones(4, dtype=torch.bool) for name in (POLICY, *sources)},
        max_completion_length=3,
        step=step,
        rewards=some()[:, 0],
        advantages=torch.tensor([[0.7], [-0.7], [0.0], [0.0]]),
        expected_logp=some()[:, 0],
        tokens=3 * one,
        rows=one,
        all_rows=one,
        micro_batches=one / 4,
    )
    for name in ("logp", "old_logp", "ref_logp", "rollout_logp", "entropy", "values", "old_values", "returns"):
        setattr(made, name, some())
    return made, dead


def _gradients(equation: Equation, batch: Batch) -> list[torch.Tensor]:
    leaves = {name: getattr(batch, name).detach().requires_grad_() for name in _LEAVES}
    loss = objective(replace(batch, **leaves), equation)
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return [torch.zeros(4, 3) if x is None else x for x in found]
