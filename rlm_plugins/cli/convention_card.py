"""The card of a row: how other libraries compute what bears its name, and by how much that differs.

Nothing on it is written down: the advantage of a winner and a loss are computed by the rows themselves.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rlm_plugins.algorithm import base_name
from rlm_plugins.batch import Batch
from rlm_plugins.cli import diff as diffs
from rlm_plugins.cli.objective_text import slots_of
from rlm_plugins.cli.text_layout import columns
from rlm_plugins.errors import RlmError
from rlm_plugins.lazy import torch
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part

Entry = dict[str, Any]

WINNER = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
"""One right answer in a group of eight: the rewards of the first example."""
RAGGED = ([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0], [1.0, 1.0, 0.0, 1.0]], [[3, 1, 5, 0], [2, 2], [2, 6, 3, 4]])
"""Rewards and lengths of the second: three groups, one of them all right; rows of 0 to 6 tokens, one token written by
a tool, the longest row at its limit; three micro-batches, one group each."""

LIMIT = 6
"""Tokens a completion may have in both."""


@dataclass(frozen=True)
class Sums:
    """What a row makes of the two examples.

    Args:
        winner: Â of the right answer in `WINNER`.
        loss: The loss of `RAGGED`.
        gradient: The norm of its gradient in the log-probabilities.
    """

    winner: float
    loss: float
    gradient: float


def card(row: Part, registry: Registry) -> Entry:
    """The conventions there are for a row, or for the row that a convention is one of.

    Returns:
        ``running``: the name that was asked for; ``rewards``: those of the winner's example; ``conventions``: name,
        winner, loss, gradient (null where the examples lack what the row needs), and differs: the changes from the
        plain row, as `rlm diff` finds them. Empty when the row has no conventions, or no equation.
    """
    members = [part for part in registry if part.hook == row.hook and base_name(part.name) == base_name(row.name)]
    if len(members) < 2 or row.target.aggregator is None:
        return {}
    paper = min(members, key=lambda part: "@" in part.name)
    found = [_line(part, paper, registry) for part in members]
    return {"running": row.name, "rewards": WINNER, "conventions": found}


def sums(row: Part, registry: Registry) -> Sums:
    """The examples, computed by a row.

    Raises:
        RlmError: The examples lack what the row needs, or a part of it is not there.
    """
    from rlm_plugins.step import Equation, score

    equation = Equation.of(slots_of(row.target, registry))
    single = _batch([WINNER], [[4] * len(WINNER)])
    winner = score(replace(single, ref_logp=single.old_logp), equation).advantages[0, 0].item()
    loss, gradient = _learnt(_batch(*RAGGED), equation)
    return Sums(winner, loss, gradient)


def tell(found: Entry) -> str:
    """A card as text: its rows below each other, the one that was asked for marked; beside each what is different."""
    if not found:
        return ""
    rows: list[tuple[str, ...]] = [("", "", "Â", "loss", "|∇|", "", "", "")]
    for line in found["conventions"]:
        mark = ">" if line["name"] == found["running"] else ""
        numbers = ["–" if line[key] is None else f"{line[key]:.3f}" for key in ("winner", "loss", "gradient")]
        first, *rest = [change_line(change) for change in line["differs"]] or [("", "", "")]
        rows += [(mark, line["name"], *numbers, *first), *((*[""] * 5, *change) for change in rest)]
    rewards = " ".join(f"{r:g}" for r in found["rewards"])
    about = f"  Â of the winner of rewards {rewards}; loss and norm of its gradient on ten ragged rows of three groups"
    return f"{about}\n{columns(rows)}"


def change_line(change: Entry) -> tuple[str, str, str]:
    """A change of `rlm diff`: symbol, place, before → after."""
    symbol, where, before, after = diffs.line(change)
    return symbol, where, f"{before} → {after}"


def _line(part: Part, paper: Part, registry: Registry) -> Entry:
    """One row of the card, with what of it can be had: a guest's row may need more, or be wrong."""
    entry: Entry = {"name": part.name, **dict.fromkeys(Sums.__annotations__), "differs": []}
    with suppress(RlmError):
        entry["differs"] = diffs.diff(paper.full_name, part.full_name, registry)["changes"]
    with suppress(RlmError):
        entry |= vars(sums(part, registry))
    return entry


def _batch(rewards: list[list[float]], lengths: list[list[int]]) -> Batch:
    """Groups one after another; their log-probabilities are digits of a sine, and the policy has moved."""
    sizes = torch.tensor([len(group) for group in rewards])
    mask = torch.arange(LIMIT) < torch.tensor([n for group in lengths for n in group]).unsqueeze(1)
    mask[-1, 1] = False  # what the tool has written
    score = torch.tensor([r for group in rewards for r in group], dtype=torch.float64)

    def noise(of: int) -> torch.Tensor:
        return torch.sin(torch.arange(mask.numel(), dtype=torch.float64).view(mask.shape) * of)

    old = -1.0 - noise(2)
    return Batch(
        group=torch.arange(len(sizes)).repeat_interleave(sizes),
        mask=mask,
        truncated=torch.zeros(len(mask), dtype=torch.bool),
        max_completion_length=LIMIT,
        step=0,
        rewards=score,
        named_rewards={"accuracy": score},
        logp=old + 1.5 * noise(3),
        old_logp=old,
        ref_logp=old + noise(5) / 4,
        rollout_logp=old + noise(7) / 2,
        entropy=1.0 + noise(11) / 2,
    )


def _learnt(batch: Batch, equation: Any) -> tuple[float, float]:
    """Loss and norm of its gradient, summed up over micro-batches of one group."""
    from rlm_plugins.dispatch import select
    from rlm_plugins.step import objective, score
    from rlm_plugins.step_batch import with_own_step_batch

    scored = score(batch, equation)
    groups = scored.group.unique()
    logp = batch.logp.requires_grad_()
    scored = replace(
        with_own_step_batch(scored),
        logp=logp,
        num_tokens=scored.mask.sum().double(),
        num_sequences=scored.mask.any(1).sum().double(),
        num_sequences_all=torch.tensor(len(scored.mask)).double(),
        num_micro_batches=torch.tensor(len(groups)).double(),
    )
    loss = torch.stack([objective(select(scored, scored.group == group), equation) for group in groups]).sum()
    (gradient,) = torch.autograd.grad(loss, logp)
    return loss.item(), gradient.norm().item()
