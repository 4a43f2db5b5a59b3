"""The convention card of an algorithm: the implementation variants of other libraries, with example values.

Each variant computes the advantage and the loss of two examples, once per version of the installed packages.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from rlm_lab.part_changes import change_line, changes
from rlm_lab.stored import stored
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.errors import RlmError
from rlm_plugins.lazy import torch
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.report.objective_text import Slots, slots_of
from rlm_plugins.report.text_layout import columns
from rlm_plugins.specs import base_name

Entry = dict[str, Any]

WINNER = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
"""Rewards of the first example: one correct completion in a group of eight."""
RAGGED = ([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0], [1.0, 1.0, 0.0, 1.0]], [[3, 1, 5, 0], [2, 2], [2, 6, 3, 4]])
"""Rewards and lengths of the second example: three groups, one of them all correct, each a micro-batch. Completions
have 0 to 6 tokens; one token is tool output, and the longest completion is at its limit."""

LIMIT = 6
"""Maximum tokens of a completion in both examples."""


def card(algorithm: Part, registry: Registry) -> Entry:
    """Return the conventions of an algorithm, or of the algorithm that a convention belongs to.

    Returns:
        ``running``: the name of `algorithm`; ``rewards``: those of the first example; ``conventions``: name, winner
        (Â of the correct completion in `WINNER`), loss and gradient (of `RAGGED`, the norm in the log-probabilities;
        null if the examples lack data that the algorithm needs), and differs: the changes from the paper's algorithm,
        as in `rlm explain A B`. Empty without conventions or without an equation.
    """
    name = base_name(algorithm.name)
    members = [part for part in registry if part.hook == algorithm.hook and base_name(part.name) == name]
    if len(members) < 2 or algorithm.target.aggregator is None:
        return {}
    paper = min(members, key=lambda part: "@" in part.name)
    named = f"conventions {[(part.full_name, part.target.slots()) for part in members]}"
    conventions = stored(named, registry, lambda: [_convention(part, paper, registry) for part in members])
    return {"running": algorithm.name, "rewards": WINNER, "conventions": conventions}


def _convention(part: Part, paper: Part, registry: Registry) -> Entry:
    """Return one line of the card; values are null if a third-party algorithm needs other data or is broken."""
    entry: Entry = {"name": part.name, "winner": None, "loss": None, "gradient": None, "differs": []}
    with suppress(RlmError):
        entry["differs"] = changes(slots_of(paper.target, registry), slots_of(part.target, registry))
    with suppress(RlmError):
        entry |= _example_values(slots_of(part.target, registry))
    return entry


def _example_values(slots: Slots) -> Entry:
    """Compute the two examples with the parts of an algorithm."""
    from rlm_plugins.equation.step import score

    equation = Equation.from_slots(slots)
    batch = _batch([WINNER], [[4] * len(WINNER)])
    winner = score(replace(batch, ref_logp=batch.old_logp), equation).advantages[0, 0].item()
    loss, gradient = _loss_and_gradient(_batch(*RAGGED), equation)
    return {"winner": winner, "loss": loss, "gradient": gradient}


def render(entry: Entry) -> str:
    """Return a card as text: one line per convention with its differences, the running one marked."""
    if not entry:
        return ""
    lines: list[tuple[str, ...]] = [("", "", "Â", "loss", "|∇|", "", "", "")]
    for line in entry["conventions"]:
        mark = ">" if line["name"] == entry["running"] else ""
        numbers = ["–" if line[key] is None else f"{line[key]:.3f}" for key in ("winner", "loss", "gradient")]
        cells = [(symbol, place, f"{x} → {y}") for symbol, place, x, y in map(change_line, line["differs"])]
        first, *rest = cells or [("", "", "")]
        lines += [(mark, line["name"], *numbers, *first), *((*[""] * 5, *change) for change in rest)]
    rewards = " ".join(f"{r:g}" for r in entry["rewards"])
    caption = f"Â of the winner of rewards {rewards}; loss and gradient norm on ten completions of three groups"
    return f"{caption}\n{columns(lines, indent='')}"


def _batch(rewards: list[list[float]], lengths: list[list[int]]) -> Batch:
    """Return a batch of groups with deterministic log-probs of a policy that differs from the old one."""
    sizes = torch.tensor([len(group) for group in rewards])
    mask = torch.arange(LIMIT) < torch.tensor([n for group in lengths for n in group]).unsqueeze(1)
    mask[-1, 1] = False  # tool output
    reward = torch.tensor([r for group in rewards for r in group], dtype=torch.float64)

    def noise(frequency: int) -> torch.Tensor:
        # A sine and not an RNG: the values must be the same on every machine.
        return torch.sin(torch.arange(mask.numel(), dtype=torch.float64).view(mask.shape) * frequency)

    old = -1.0 - noise(2)
    return Batch(
        group=torch.arange(len(sizes)).repeat_interleave(sizes),
        mask=mask,
        truncated=torch.zeros(len(mask), dtype=torch.bool),
        max_completion_length=LIMIT,
        step=0,
        rewards=reward,
        named_rewards={"accuracy": reward},
        logp=old + 1.5 * noise(3),
        old_logp=old,
        ref_logp=old + noise(5) / 4,
        rollout_logp=old + noise(7) / 2,
        teacher_logp=old + noise(13) / 2,
        has_teacher=torch.ones(len(mask), dtype=torch.bool),
        entropy=1.0 + noise(11) / 2,
    )


def _loss_and_gradient(batch: Batch, equation: Any) -> tuple[float, float]:
    """Return the loss and the norm of its gradient, summed over micro-batches of one group each."""
    from rlm_plugins.equation.step import score

    scored = score(batch, equation)
    logp = batch.logp.requires_grad_()
    loss = step_loss(replace(scored, logp=logp), equation)
    (gradient,) = torch.autograd.grad(loss, logp)
    return loss.item(), gradient.norm().item()


def step_loss(scored: Batch, equation: Equation) -> torch.Tensor:
    """Return the loss of a scored batch as one optimizer step, summed over micro-batches of one group each."""
    from rlm_plugins.equation.dispatch import select, term_counts
    from rlm_plugins.equation.step import objective, with_own_step_batch

    groups = scored.group.unique()
    counted = replace(
        with_own_step_batch(scored),
        num_tokens=scored.mask.sum().double(),
        num_sequences=scored.mask.any(1).sum().double(),
        num_sequences_all=torch.tensor(len(scored.mask)).double(),
        num_micro_batches=torch.tensor(len(groups)).double(),
        term_counts=term_counts(scored, equation.terms()),
    )
    return torch.stack([objective(select(counted, counted.group == group), equation) for group in groups]).sum()
