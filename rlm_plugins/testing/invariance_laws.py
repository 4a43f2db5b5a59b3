"""What must not change the answer of a part of the equation: padding, order, company, the cutting of a batch."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import strategies as st

from rlm_plugins.dispatch import on_last_token
from rlm_plugins.testing.batch_transforms import (
    cast,
    dirty,
    relabelled,
    reordered,
    wider,
    with_empty_row,
    without_tokens,
)
from rlm_plugins.testing.evaluation import Look, equal, look, same, shown, sound
from rlm_plugins.testing.law import LOSS, SCORING, STEP, Draw, law
from rlm_plugins.testing.part_under_test import LawBroken, Subject
from rlm_plugins.testing.strategies import batches_for

SEEDS = st.integers(0, 99)


@law(*STEP)
def padding(subject: Subject, draw: Draw) -> None:
    """What stands outside the mask changes nothing and learns nothing."""
    batch, seed = draw(batches_for(subject)), draw(SEEDS)
    now, then = look(subject, batch), look(subject, dirty(batch, seed))
    same(subject, batch, now, then, what="under other padding")
    for name, gradient in then.gradients.items():
        if gradient.shape == batch.mask.shape and gradient[~batch.mask].any():
            raise LawBroken(f"padding has a gradient in {name}: {gradient.tolist()}", shown(subject, batch))


@law(*STEP)
def width(subject: Subject, draw: Draw) -> None:
    """More columns of padding change nothing."""
    batch, columns = draw(batches_for(subject)), draw(st.integers(1, 3))
    tokens = batch.mask.shape[1]
    then = look(subject, wider(batch, columns))

    def narrow(x: torch.Tensor) -> torch.Tensor:
        return x[:, :tokens] if x.dim() == 2 and x.shape[1] == tokens + columns else x

    narrowed = Look(tuple(map(narrow, then.values)), {name: narrow(g) for name, g in then.gradients.items()})
    same(subject, batch, look(subject, batch), narrowed, what="under more padding")


@law(*STEP)
def order(subject: Subject, draw: Draw) -> None:
    """The order of the rows does not matter."""
    batch = draw(batches_for(subject))
    permutation = torch.tensor(draw(st.permutations(range(len(batch.group)))))
    then = look(subject, reordered(batch, permutation))
    same(subject, batch, _rows(look(subject, batch), permutation), then, what="in another order")


def _rows(seen: Look, which: torch.Tensor) -> Look:
    """What was seen of some rows, in the order given; a scalar is everybody's."""
    values = tuple(x[which] if x.dim() else x for x in seen.values)
    return Look(values, {name: g[which] for name, g in seen.gradients.items()})


@law(*SCORING)
def isolation(subject: Subject, draw: Draw) -> None:
    """Other groups change nothing: a group alone is treated as in company."""
    batch = draw(batches_for(subject))
    now = look(subject, batch)
    for label in batch.group.unique():
        members = (batch.group == label).nonzero().squeeze(1)
        alone = look(subject, reordered(batch, members))
        same(subject, batch, _rows(now, members), alone, what=f"of group {label} without the others")


@law(*LOSS)
def split(subject: Subject, draw: Draw) -> None:
    """Cutting the optimiser step into other micro-batches changes nothing."""
    batch = draw(batches_for(subject))
    cut = draw(st.integers(1, max(1, len(batch.group) - 1)))
    rows = torch.arange(len(batch.group))
    pieces = [look(subject, reordered(batch, piece)) for piece in (rows[:cut], rows[cut:]) if len(piece)]
    same(subject, batch, look(subject, batch), _joined(pieces), what=f"when cut before row {cut}")


def _joined(pieces: list[Look]) -> Look:
    """What was seen of all rows, from what was seen of some: rows one after another, scalars added up."""
    scalar = not pieces[0].values[0].dim()
    values = [p.values[0] for p in pieces]
    value = torch.stack(values).sum() if scalar else torch.cat(values)
    shared = set.intersection(*({*p.gradients} for p in pieces))
    return Look((value,), {name: torch.cat([p.gradients[name] for p in pieces]) for name in sorted(shared)})


@law(*STEP, applies=lambda s: s.names("group"))
def labels(subject: Subject, draw: Draw) -> None:
    """The numbers that groups go by mean nothing."""
    batch = draw(batches_for(subject))
    same(subject, batch, look(subject, batch), look(subject, relabelled(batch)), what="under other group numbers")


@law("rlm_advantages")
def ties(subject: Subject, draw: Draw) -> None:
    """When all rewards are equal nobody did better: the advantage is exactly 0."""
    batch = cast(draw(batches_for(subject, group_size=9)), torch.float32)
    level = draw(st.sampled_from([0.3, 0.0, 1.0, -0.7, 1234.567]))
    rewards = torch.full_like(batch.rewards, level)
    batch = replace(batch, rewards=rewards, token_rewards=on_last_token(rewards, batch.mask))
    advantages = look(subject, batch).values[0]
    if advantages.any():
        raise LawBroken(f"the advantages are {advantages.tolist()}", shown(subject, batch))


@law(*STEP)
def empty(subject: Subject, draw: Draw) -> None:
    """Rows without a trained token do no harm; in the learning room they change nothing."""
    batch = draw(batches_for(subject))
    nothing = look(subject, without_tokens(batch))
    sound(subject, without_tokens(batch), nothing)
    if subject.part.hook not in LOSS:
        return
    equal(subject, batch, torch.tensor(0.0), nothing.values[0].sum(), "the sum over no tokens")
    everybody = torch.arange(len(batch.group))
    then = _rows(look(subject, with_empty_row(batch)), everybody)
    same(subject, batch, look(subject, batch), then, what="after one more row without tokens")
