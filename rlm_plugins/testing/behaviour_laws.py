"""How a part of the equation behaves: shapes, finite numbers, its data left alone, its memory kept."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from rlm_plugins.batch import Batch
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Stateful
from rlm_plugins.testing.batch_transforms import cast, copied, each
from rlm_plugins.testing.evaluation import answers, equal, look, shown, sound, without
from rlm_plugins.testing.law import LOSS, STEP, Draw, law
from rlm_plugins.testing.part_under_test import LawBroken, Subject, failure, remembering, saved
from rlm_plugins.testing.strategies import batches_for

SHAPES = {
    "rlm_shapers": ("B", "B T"),
    "rlm_filters": ("B",),
    "rlm_advantages": ("B", "B T"),
    "rlm_aggregators": ("",),
}
"""Hook → shapes it may return; the others: per token or per row."""


@law(*STEP, share=0.25)
def shape(subject: Subject, draw: Draw) -> None:
    """The result has a shape its hook allows, and is made of numbers (a filter's: of booleans)."""
    batch = draw(batches_for(subject))
    rows, tokens = batch.mask.shape
    sizes = {"": (), "B": (rows,), "B 1": (rows, 1), "B T": (rows, tokens)}
    shapes = SHAPES.get(subject.part.hook, ("B 1", "B T"))
    first, *rest = answers(subject, copied(batch))
    if tuple(first.shape) not in {sizes[s] for s in shapes}:
        wanted = " or ".join(f"({', '.join(s.split())})" for s in shapes)
        raise LawBroken(f"the result has shape {tuple(first.shape)}, not {wanted}", shown(subject, batch))
    if rest and (subject.part.hook != "rlm_advantages" or [tuple(x.shape) for x in rest] != [(rows, tokens)]):
        raise LawBroken("only an advantage may return a pair, (advantages, returns (B, T))", shown(subject, batch))
    logical = subject.part.hook == "rlm_filters"
    if logical != (first.dtype == torch.bool):
        raise LawBroken(f"the result is made of {first.dtype}", shown(subject, batch))


@law(*STEP, applies=lambda s: bool(s.part.welcomes), share=0.25)
def optional(subject: Subject, draw: Draw) -> None:
    """It does without the data it calls optional."""
    batch = draw(batches_for(subject))
    answers(subject, copied(without(batch, subject.part.welcomes)))


@law(*STEP)
def finite(subject: Subject, draw: Draw) -> None:
    """Values and gradients are finite, far from the reference, too."""
    batch = cast(draw(batches_for(subject, wild=draw(st.booleans()))), torch.float32)
    sound(subject, batch, look(subject, batch))


@law(*STEP, applies=lambda s: s.part.hook not in ("rlm_filters", "rlm_token_weights"), share=0.25)
def precision(subject: Subject, draw: Draw) -> None:
    """No result is less precise than its data, in float64, float32 and bfloat16."""
    batch = draw(batches_for(subject))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        data = cast(batch, dtype)
        given = [x for x in shown(subject, data).values() if isinstance(x, torch.Tensor) and x.is_floating_point()]
        for x in answers(subject, data):
            if given and torch.promote_types(x.dtype, dtype) != x.dtype:
                raise LawBroken(f"{dtype} came back as {x.dtype}", shown(subject, batch))


@law(*STEP, share=0.25)
def device(subject: Subject, draw: Draw) -> None:
    """Tensors that it makes are made on the device of its data."""
    batch = draw(batches_for(subject))
    now = answers(subject, copied(batch))
    with torch.device("meta"):  # where a tensor lands that is made without `device=`
        then = answers(subject, copied(batch))
    for x, y in zip(now, then, strict=True):
        if x.device != y.device:
            raise LawBroken(f"the result is on another device ('{y.device}' stands for it)", shown(subject, batch))


@law(*STEP, share=0.25)
def repeat(subject: Subject, draw: Draw) -> None:
    """The same data give the same result, to the last bit."""
    batch = draw(batches_for(subject))
    for x, y in zip(answers(subject, copied(batch)), answers(subject, copied(batch)), strict=True):
        if not torch.equal(x.nan_to_num(), y.nan_to_num()):
            raise LawBroken(f"{x.tolist()} the first time, {y.tolist()} the second", shown(subject, batch))


@law(*STEP, share=0.25)
def purity(subject: Subject, draw: Draw) -> None:
    """Its data are left as they were."""
    batch = draw(batches_for(subject))
    given = copied(batch)
    answers(subject, given)
    before: list[tuple[str, torch.Tensor]] = []
    each(batch, lambda name, x: before.append((name, x)))
    after: list[torch.Tensor] = []
    each(given, lambda _, x: after.append(x))
    for (name, x), y in zip(before, after, strict=True):
        if not torch.equal(x.nan_to_num(), y.nan_to_num()):
            raise LawBroken(f"it changed {name} from {x.tolist()} to {y.tolist()}", shown(subject, batch))


@law(*LOSS, share=0.25)
def gradient(subject: Subject, draw: Draw) -> None:
    """A token weight carries no gradient; everything else in the learning room does."""
    batch = draw(batches_for(subject))
    carries = bool(look(subject, batch).gradients)
    if carries and subject.part.hook == "rlm_token_weights":
        raise LawBroken("the weight has a gradient: detach what it is made of", shown(subject, batch))
    if not carries and subject.part.hook != "rlm_token_weights":
        raise LawBroken("nothing it is made of gets a gradient", shown(subject, batch))


@law(*STEP, applies=lambda s: isinstance(s.part.target, type))
def memory(subject: Subject, draw: Draw) -> None:
    """Its memory survives a checkpoint: state_dict, torch.save, load_state_dict; or it has none."""
    first, second = draw(batches_for(subject)), draw(batches_for(subject))
    old, new = subject.fresh(), subject.fresh()
    old(copied(first))
    _learn(subject, old, first)
    if isinstance(old.target, Stateful):
        remembering(new).load_state_dict(saved(remembering(old).state_dict()))
    for x, y in zip(_several(old(copied(second))), _several(new(copied(second))), strict=True):
        equal(subject, second, x, y, "the result after a checkpoint")


@law(*STEP, applies=lambda s: bool(s.part.update_needs or s.part.update_welcomes), share=0.25)
def learning(subject: Subject, draw: Draw) -> None:
    """What it learns from is left as it was, and teaches two of a kind the same, finite thing."""
    batch, second = draw(batches_for(subject)), draw(batches_for(subject))
    old, new = subject.fresh(), subject.fresh()
    given = copied(batch)
    _learn(subject, old, given)
    _learn(subject, new, copied(batch))
    before: list[torch.Tensor] = []
    each(batch, lambda _, x: before.append(x))
    after: list[torch.Tensor] = []
    each(given, lambda _, x: after.append(x))
    if not all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(before, after, strict=True)):
        raise LawBroken("its `update` changed the data", shown(subject, batch))
    for x, y in zip(_several(old(copied(second))), _several(new(copied(second))), strict=True):
        equal(subject, second, x, y, "the result after learning")
        if not x[second.mask if x.dim() == 2 and x.shape == second.mask.shape else ...].isfinite().all():
            raise LawBroken(f"after learning it returned {x.tolist()}", shown(subject, second))


def _learn(subject: Subject, part: Bound, batch: Batch) -> None:
    try:
        part.update(batch)
    except Exception as error:
        raise LawBroken(f"its `update`: {failure(error)}", shown(subject, batch)) from error


def _several(x: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return x if isinstance(x, tuple) else (x,)
