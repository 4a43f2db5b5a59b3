"""Laws of behavior: shapes, finite values, unchanged data, and state that survives a checkpoint."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from rlm_plugins.batch import Batch
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Stateful
from rlm_testing.batch_transforms import cast, copied, each
from rlm_testing.evaluation import call_part, check_equal, check_finite, evaluate, example_data, without_data
from rlm_testing.law import LOSS, STEP, Draw, law
from rlm_testing.part_under_test import LawBroken, Subject, failure, stateful, through_checkpoint
from rlm_testing.strategies import batches_for

SHAPES = {
    "rlm_shapers": ("B", "B T"),
    "rlm_filters": ("B",),
    "rlm_advantages": ("B", "B T"),
    "rlm_aggregators": ("",),
}
"""Hook → allowed shapes; of all others: per token or per completion."""


@law(*STEP, share=0.25)
def shape(subject: Subject, draw: Draw) -> None:
    """Check that the result has a shape and dtype that its hook allows (a filter's is boolean)."""
    batch = draw(batches_for(subject))
    batch_size, width = batch.mask.shape
    sizes = {"": (), "B": (batch_size,), "B 1": (batch_size, 1), "B T": (batch_size, width)}
    shapes = SHAPES.get(subject.part.hook, ("B 1", "B T"))
    first, *rest = call_part(subject, copied(batch))
    if tuple(first.shape) not in {sizes[s] for s in shapes}:
        allowed = " or ".join(f"({', '.join(s.split())})" for s in shapes)
        raise LawBroken(f"the result has shape {tuple(first.shape)}, not {allowed}", example_data(subject, batch))
    if rest and (subject.part.hook != "rlm_advantages" or [tuple(x.shape) for x in rest] != [(batch_size, width)]):
        raise LawBroken(
            "only an advantage may return a pair, (advantages, returns (B, T))", example_data(subject, batch)
        )
    boolean = subject.part.hook == "rlm_filters"
    if boolean != (first.dtype == torch.bool):
        raise LawBroken(f"the result has dtype {first.dtype}", example_data(subject, batch))


@law(*STEP, applies=lambda s: bool(s.part.optional_data), share=0.25)
def optional(subject: Subject, draw: Draw) -> None:
    """Check that it works without its optional data."""
    batch = draw(batches_for(subject))
    call_part(subject, copied(without_data(batch, subject.part.optional_data)))


@law(*STEP)
def finite(subject: Subject, draw: Draw) -> None:
    """Check that values and gradients are finite, also far from the reference."""
    batch = cast(draw(batches_for(subject, wild=draw(st.booleans()))), torch.float32)
    check_finite(subject, batch, evaluate(subject, batch))


@law(*STEP, applies=lambda s: s.part.hook not in ("rlm_filters", "rlm_token_weights"), share=0.25)
def precision(subject: Subject, draw: Draw) -> None:
    """Check that no result is less precise than its data, in float64, float32 and bfloat16."""
    batch = draw(batches_for(subject))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        data = cast(batch, dtype)
        tensors = [x for x in example_data(subject, data).values() if isinstance(x, torch.Tensor)]
        has_floats = any(x.is_floating_point() for x in tensors)
        for x in call_part(subject, data):
            if has_floats and torch.promote_types(x.dtype, dtype) != x.dtype:
                raise LawBroken(f"the result on {dtype} has dtype {x.dtype}", example_data(subject, batch))


@law(*STEP, share=0.25)
def device(subject: Subject, draw: Draw) -> None:
    """Check that it creates tensors on the device of its data."""
    batch = draw(batches_for(subject))
    expected = call_part(subject, copied(batch))
    with torch.device("meta"):  # the default of tensors created without `device=`
        results = call_part(subject, copied(batch))
    for x, y in zip(expected, results, strict=True):
        if x.device != y.device:
            raise LawBroken(
                f"the result is on another device ('{y.device}' stands for it)", example_data(subject, batch)
            )


@law(*STEP, share=0.25)
def repeat(subject: Subject, draw: Draw) -> None:
    """Check that equal data give bit-exact equal results."""
    batch = draw(batches_for(subject))
    for x, y in zip(call_part(subject, copied(batch)), call_part(subject, copied(batch)), strict=True):
        if not torch.equal(x.nan_to_num(), y.nan_to_num()):
            raise LawBroken(f"{x.tolist()} the first time, {y.tolist()} the second", example_data(subject, batch))


@law(*STEP, share=0.25)
def purity(subject: Subject, draw: Draw) -> None:
    """Check that its data are unchanged."""
    batch = draw(batches_for(subject))
    data = copied(batch)
    call_part(subject, data)
    before: list[tuple[str, torch.Tensor]] = []
    each(batch, lambda name, x: before.append((name, x)))
    after: list[torch.Tensor] = []
    each(data, lambda _, x: after.append(x))
    for (name, x), y in zip(before, after, strict=True):
        if not torch.equal(x.nan_to_num(), y.nan_to_num()):
            raise LawBroken(f"it changed {name} from {x.tolist()} to {y.tolist()}", example_data(subject, batch))


@law(*LOSS, share=0.25)
def gradient(subject: Subject, draw: Draw) -> None:
    """Check that a token weight has no gradient, and any other part of the loss phase has one."""
    batch = draw(batches_for(subject))
    has_gradient = bool(evaluate(subject, batch).gradients)
    if has_gradient and subject.part.hook == "rlm_token_weights":
        raise LawBroken("the weight has a gradient: detach its inputs", example_data(subject, batch))
    if not has_gradient and subject.part.hook != "rlm_token_weights":
        raise LawBroken("none of its inputs gets a gradient", example_data(subject, batch))


@law(*STEP, applies=lambda s: isinstance(s.part.target, type))
def state(subject: Subject, draw: Draw) -> None:
    """Check that its state survives a checkpoint (state_dict, torch.save, load_state_dict), or it has none."""
    first, second = draw(batches_for(subject)), draw(batches_for(subject))
    old, new = subject.fresh(), subject.fresh()
    old(copied(first))
    _update(subject, old, first)
    if isinstance(old.target, Stateful):
        stateful(new).load_state_dict(through_checkpoint(stateful(old).state_dict()))
    for x, y in zip(_as_tuple(old(copied(second))), _as_tuple(new(copied(second))), strict=True):
        check_equal(subject, second, x, y, "the result after a checkpoint")


@law(*STEP, applies=lambda s: bool(s.part.update_required_data or s.part.update_optional_data), share=0.25)
def update(subject: Subject, draw: Draw) -> None:
    """Check that `update` leaves its data unchanged, is reproducible, and keeps results finite."""
    batch, second = draw(batches_for(subject)), draw(batches_for(subject))
    old, new = subject.fresh(), subject.fresh()
    data = copied(batch)
    _update(subject, old, data)
    _update(subject, new, copied(batch))
    before: list[torch.Tensor] = []
    each(batch, lambda _, x: before.append(x))
    after: list[torch.Tensor] = []
    each(data, lambda _, x: after.append(x))
    if not all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(before, after, strict=True)):
        raise LawBroken("its `update` changed the data", example_data(subject, batch))
    for x, y in zip(_as_tuple(old(copied(second))), _as_tuple(new(copied(second))), strict=True):
        check_equal(subject, second, x, y, "the result after `update`")
        if not x[second.mask if x.dim() == 2 and x.shape == second.mask.shape else ...].isfinite().all():
            raise LawBroken(f"after `update` it returned {x.tolist()}", example_data(subject, second))


def _update(subject: Subject, part: Bound, batch: Batch) -> None:
    try:
        part.update(batch)
    except Exception as error:
        raise LawBroken(f"its `update`: {failure(error)}", example_data(subject, batch)) from error


def _as_tuple(x: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return x if isinstance(x, tuple) else (x,)
