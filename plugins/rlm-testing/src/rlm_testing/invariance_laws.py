"""Laws of invariance: a part's result must not depend on padding, order, other groups or micro-batches."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import strategies as st

from rlm_plugins.dispatch import on_last_token
from rlm_testing.batch_transforms import (
    cast,
    select_in_order,
    widened,
    with_empty_completion,
    with_other_group_numbers,
    with_other_padding,
    without_tokens,
)
from rlm_testing.evaluation import Evaluation, check_equal, check_finite, check_same, evaluate, example_data
from rlm_testing.law import LOSS, SCORING, STEP, Draw, law
from rlm_testing.part_under_test import LawBroken, Subject
from rlm_testing.strategies import batches_for

SEEDS = st.integers(0, 99)


@law(*STEP)
def padding(subject: Subject, draw: Draw) -> None:
    """Check that values outside the mask have no effect and no gradient."""
    batch, seed = draw(batches_for(subject)), draw(SEEDS)
    before, after = evaluate(subject, batch), evaluate(subject, with_other_padding(batch, seed))
    check_same(subject, batch, before, after, what="under other padding")
    for name, gradient in after.gradients.items():
        if gradient.shape == batch.mask.shape and gradient[~batch.mask].any():
            raise LawBroken(f"padding has a gradient in {name}: {gradient.tolist()}", example_data(subject, batch))


@law(*STEP)
def width(subject: Subject, draw: Draw) -> None:
    """Check that more columns of padding change nothing."""
    batch, columns = draw(batches_for(subject)), draw(st.integers(1, 3))
    tokens = batch.mask.shape[1]
    after = evaluate(subject, widened(batch, columns))

    def narrow(x: torch.Tensor) -> torch.Tensor:
        return x[:, :tokens] if x.dim() == 2 and x.shape[1] == tokens + columns else x

    narrowed = Evaluation(tuple(map(narrow, after.values)), {name: narrow(g) for name, g in after.gradients.items()})
    check_same(subject, batch, evaluate(subject, batch), narrowed, what="under more padding")


@law(*STEP)
def order(subject: Subject, draw: Draw) -> None:
    """Check that the order of the completions does not matter."""
    batch = draw(batches_for(subject))
    permutation = torch.tensor(draw(st.permutations(range(len(batch.group)))))
    after = evaluate(subject, select_in_order(batch, permutation))
    check_same(subject, batch, _select(evaluate(subject, batch), permutation), after, what="in another order")


def _select(evaluation: Evaluation, indices: torch.Tensor) -> Evaluation:
    """Return the values and gradients of some completions; scalars stay."""
    values = tuple(x[indices] if x.dim() else x for x in evaluation.values)
    return Evaluation(values, {name: g[indices] for name, g in evaluation.gradients.items()})


@law(*SCORING)
def isolation(subject: Subject, draw: Draw) -> None:
    """Check that other groups change nothing: a group alone has the same result."""
    batch = draw(batches_for(subject))
    full = evaluate(subject, batch)
    for label in batch.group.unique():
        members = (batch.group == label).nonzero().squeeze(1)
        alone = evaluate(subject, select_in_order(batch, members))
        check_same(subject, batch, _select(full, members), alone, what=f"of group {label} without the others")


@law(*LOSS)
def split(subject: Subject, draw: Draw) -> None:
    """Check that splitting the optimizer step into other micro-batches changes nothing."""
    batch = draw(batches_for(subject))
    cut = draw(st.integers(1, max(1, len(batch.group) - 1)))
    rows = torch.arange(len(batch.group))
    pieces = [evaluate(subject, select_in_order(batch, piece)) for piece in (rows[:cut], rows[cut:]) if len(piece)]
    check_same(
        subject, batch, evaluate(subject, batch), _concatenate(pieces), what=f"when split before completion {cut}"
    )


def _concatenate(pieces: list[Evaluation]) -> Evaluation:
    """Return the evaluation of all pieces: values concatenated, scalars summed."""
    scalar = not pieces[0].values[0].dim()
    values = [p.values[0] for p in pieces]
    value = torch.stack(values).sum() if scalar else torch.cat(values)
    shared = set.intersection(*({*p.gradients} for p in pieces))
    return Evaluation((value,), {name: torch.cat([p.gradients[name] for p in pieces]) for name in sorted(shared)})


@law(*STEP, applies=lambda s: s.names("group"))
def labels(subject: Subject, draw: Draw) -> None:
    """Check that the numbers of the groups do not matter."""
    batch = draw(batches_for(subject))
    check_same(
        subject,
        batch,
        evaluate(subject, batch),
        evaluate(subject, with_other_group_numbers(batch)),
        what="under other group numbers",
    )


@law("rlm_advantages")
def ties(subject: Subject, draw: Draw) -> None:
    """Check that the advantage is exactly 0 when all rewards are equal."""
    batch = cast(draw(batches_for(subject, group_size=9)), torch.float32)
    level = draw(st.sampled_from([0.3, 0.0, 1.0, -0.7, 1234.567]))
    rewards = torch.full_like(batch.rewards, level)
    batch = replace(batch, rewards=rewards, token_rewards=on_last_token(rewards, batch.mask))
    advantages = evaluate(subject, batch).values[0]
    if advantages.any():
        raise LawBroken(f"the advantages are {advantages.tolist()}", example_data(subject, batch))


@law(*STEP)
def empty(subject: Subject, draw: Draw) -> None:
    """Check that completions without a trained token give finite results; in the loss phase they change nothing."""
    batch = draw(batches_for(subject))
    evaluation = evaluate(subject, without_tokens(batch))
    check_finite(subject, without_tokens(batch), evaluation)
    if subject.part.hook not in LOSS:
        return
    check_equal(subject, batch, torch.tensor(0.0), evaluation.values[0].sum(), "the sum over no tokens")
    originals = torch.arange(len(batch.group))
    after = _select(evaluate(subject, with_empty_completion(batch)), originals)
    check_same(subject, batch, evaluate(subject, batch), after, what="after one more completion without tokens")
