"""Whether rows without advantage teach nothing: asked of the equation itself, on a batch that is made up.

A group whose answers were equally good has no advantage. Most losses then have no gradient there, so neither the
forward nor the backward pass of such a row changes anything. But a KL term, an entropy bonus, an imitation loss or a
statistic over rows does. No list of parts is kept: the loss is differentiated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.errors import PartError
from rlm_plugins.packing.regroup import counts_by_row
from rlm_plugins.rollout.group_layout import POLICY
from rlm_plugins.step import Equation, objective

_LEAVES = ("logp", "entropy", "values")
_REWARDS = (-1e3, -1.0, 0.0, 0.5, 1.0, 1e3)
"""What rows without advantage may have been paid: a term may be of right rows alone, or of wrong ones."""


def silent(equation: Equation, step: int, sources: Iterable[str] = ()) -> bool:
    """Whether rows with advantage 0 add no gradient, and leave that of the others alone whatever they say.

    Args:
        equation: The parts, with their coefficients as they are now.
        step: Optimiser steps done.
        sources: Labels of those who write.

    A term that cannot be asked, say because it holds a tensor on another device, is taken for one that sees them.
    """
    try:
        return counts_by_row(equation) and _adds_nothing(equation, *_made_up(step, sources))
    except (PartError, RuntimeError):
        return False


def _adds_nothing(equation: Equation, made: Batch, dead: torch.Tensor) -> bool:
    before = _gradients(equation, made)
    if any(x[dead].any() for x in before):
        return False
    mute = dead.unsqueeze(1)
    after = _gradients(
        equation, replace(made, logp=made.logp.where(~mute, made.old_logp), entropy=made.entropy * ~mute)
    )
    return all(torch.equal(x[~dead], y[~dead]) for x, y in zip(before, after, strict=True))


def _made_up(step: int, sources: Iterable[str]) -> tuple[Batch, torch.Tensor]:
    """Rows of two groups, of which the second has no advantage and every reward, ended and cut; which it has (B,)."""
    draw, fates = torch.Generator().manual_seed(0), list(product(_REWARDS, (False, True)))
    dead = torch.tensor([False, False] + [True] * len(fates))
    count, truncated = len(dead), torch.tensor([False, False] + [cut for _, cut in fates])
    of_all = torch.tensor(float(count))

    def some() -> torch.Tensor:
        return -torch.rand(count, 3, generator=draw)

    made = Batch(
        group=dead.long(),
        mask=torch.tensor([1, 1, 0]).bool() | truncated.unsqueeze(1),
        truncated=truncated,
        sources={name: torch.ones(count, dtype=torch.bool) for name in (POLICY, *sources)},
        max_completion_length=3,
        step=step,
        rewards=torch.tensor([0.7, -0.7] + [paid for paid, _ in fates]),
        advantages=torch.tensor([0.7, -0.7] + [0.0] * len(fates)).unsqueeze(1),
        expected_logp=some()[:, 0],
        num_tokens=3 * of_all,
        num_sequences=of_all,
        num_sequences_all=of_all,
        num_micro_batches=torch.tensor(1.0),
    )
    for name in ("logp", "old_logp", "ref_logp", "rollout_logp", "entropy", "values", "old_values", "returns"):
        setattr(made, name, some())
    return made, dead


def _gradients(equation: Equation, batch: Batch) -> list[torch.Tensor]:
    leaves = {name: getattr(batch, name).detach().requires_grad_() for name in _LEAVES}
    loss = objective(replace(batch, **leaves), equation)
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return [torch.zeros_like(leaf) if x is None else x for leaf, x in zip(leaves.values(), found, strict=True)]
