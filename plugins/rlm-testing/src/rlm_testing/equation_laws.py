"""Laws of the parts of the equation: shapes, finite values, unchanged data, state, and invariance."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import on_last_token
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Stateful
from rlm_testing.law import LOSS, SCORING, STEP, Draw, LawBroken, Subject, failure, law, load_checkpoint
from rlm_testing.strategies import (
    at_two_tokens,
    batches_for,
    cast,
    copied,
    each,
    select_in_order,
    widened,
    with_empty_completion,
    with_other_group_numbers,
    with_other_padding,
    without_tokens,
)

LEAVES = ("logp", "entropy", "log_ratio", "ratio", "values", "loss")
"""Fields that require a gradient in the loss phase."""


@dataclass(frozen=True)
class Evaluation:
    """Values of a part, and the gradient of their sum.

    Args:
        values: On the mask: (B, T) with zeros outside, (B,), or a scalar.
        gradients: Field → (B, T) or (B, 1), where the part has a gradient.
    """

    values: tuple[torch.Tensor, ...]
    gradients: dict[str, torch.Tensor]


def _evaluate(subject: Subject, batch: Batch, *, ratio_of_logp: bool = False) -> Evaluation:
    """Evaluate a new instance of the part on a copy of `batch`; `ratio_of_logp`: w is π / π_old and no leaf."""
    batch = copied(batch)
    names = [name for name in LEAVES if subject.part.hook in LOSS and not (ratio_of_logp and "ratio" in name)]
    leaves = {name: getattr(batch, name).requires_grad_() for name in names}
    if ratio_of_logp:
        log_ratio = batch.logp - batch.old_logp
        batch = replace(batch, log_ratio=log_ratio, ratio=log_ratio.exp())
    if subject.names("top_logp", "divergence_of"):
        batch = at_two_tokens(batch)
    values = tuple(_on_mask(x, batch.mask) for x in _call_part(subject, batch))
    sums = [x.sum() for x in values if x.requires_grad]
    gradients: dict[str, torch.Tensor] = {}
    if sums and leaves:
        grads = torch.autograd.grad(torch.stack(sums).sum(), list(leaves.values()), allow_unused=True)
        gradients = {name: g for name, g in zip(leaves, grads, strict=True) if g is not None}
    return Evaluation(tuple(x.detach() for x in values), gradients)


def _call_part(subject: Subject, batch: Batch) -> tuple[torch.Tensor, ...]:
    """Return the result of a new instance of the part as a tuple of tensors."""
    try:
        with warnings.catch_warnings(action="ignore"):
            result = subject.fresh()(batch)
    except Exception as error:
        raise _broken(subject, batch, failure(error)) from error
    raw = result if isinstance(result, tuple) else (result,)
    for x in raw:
        if not isinstance(x, torch.Tensor):
            raise _broken(subject, batch, f"expected a tensor, got {type(x).__name__}")
    return raw


def _on_mask(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return `x` with zeros outside the mask if it is per token."""
    return x.expand(mask.shape).where(mask, 0) if x.dim() == 2 else x


def _check_same(subject: Subject, batch: Batch, before: Evaluation, after: Evaluation, *, what: str) -> None:
    """Check that two evaluations are equal up to rounding; `what` describes the transform between them."""
    for x, y in zip(before.values, after.values, strict=True):
        _check_equal(subject, batch, x, y, f"the result {what}")
    for name in before.gradients | after.gradients:
        x, y = (gradients.get(name, torch.tensor(0.0)) for gradients in (before.gradients, after.gradients))
        _check_equal(subject, batch, x, y, f"the gradient of {name} {what}")


def equals(reference: Subject, subject: Subject, draw: Draw) -> None:
    """Check that a part equals another one in value and gradient, where w = π / π_old."""
    batch = draw(batches_for(reference if reference.names("step_batch", "top_logp") else subject))
    expected, found = (_evaluate(part, batch, ratio_of_logp=True) for part in (reference, subject))
    _check_same(subject, batch, expected, found, what=f"beside `{reference.part.name}`")


def _check_equal(subject: Subject, batch: Batch, x: torch.Tensor, y: torch.Tensor, what: str) -> None:
    """Check that two tensors are equal up to rounding."""
    if x.dim() and y.dim() and x.shape != y.shape:
        raise _broken(subject, batch, f"{what}: expected shape {tuple(x.shape)}, got {tuple(y.shape)}")
    x, y = torch.broadcast_tensors(x.double(), y.double())
    wrong = ~torch.isclose(x, y, rtol=1e-7, atol=1e-9, equal_nan=True)
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        where = f" at {list(place)}" if place else ""
        raise _broken(subject, batch, f"{what}: expected {x[place].item():.6g}, got {y[place].item():.6g}{where}")


def _check_finite(subject: Subject, batch: Batch, evaluation: Evaluation) -> None:
    """Check that values and gradients are finite."""
    for value in evaluation.values:
        if not value.isfinite().all():
            raise _broken(subject, batch, f"the result is {value.tolist()}")
    for name, gradient in evaluation.gradients.items():
        if not gradient.isfinite().all():
            raise _broken(subject, batch, f"the gradient of {name} is {gradient.tolist()}")


def _example_data(subject: Subject, batch: Batch) -> dict[str, object]:
    """Return the data of `batch` that the part takes, for printing."""
    names = dict.fromkeys((*subject.part.data, "mask"))
    return {name: getattr(batch, name) for name in names if name != "log" and getattr(batch, name, None) is not None}


def _broken(subject: Subject, batch: Batch, finding: str) -> LawBroken:
    """Return the violation of a law by a batch."""
    return LawBroken(finding, _example_data(subject, batch))


SHAPES = {"rlm_shapers": ("B", "B T"), "rlm_filters": ("B",), "rlm_advantages": ("B", "B T"), "rlm_aggregators": ("",)}
"""Hook → allowed shapes; of all others: per token or per completion."""


@law(*STEP, share=0.25)
def shape(subject: Subject, draw: Draw) -> None:
    """Check that the result has a shape and dtype that its hook allows (a filter's is boolean)."""
    batch = draw(batches_for(subject))
    batch_size, width = batch.mask.shape
    sizes = {"": (), "B": (batch_size,), "B 1": (batch_size, 1), "B T": (batch_size, width)}
    shapes = SHAPES.get(subject.part.hook, ("B 1", "B T"))
    first, *rest = _call_part(subject, copied(batch))
    if tuple(first.shape) not in [sizes[s] for s in shapes]:
        allowed = " or ".join(f"({', '.join(s.split())})" for s in shapes)
        raise _broken(subject, batch, f"the result has shape {tuple(first.shape)}, not {allowed}")
    if rest and (subject.part.hook != "rlm_advantages" or [tuple(x.shape) for x in rest] != [(batch_size, width)]):
        raise _broken(subject, batch, "only an advantage may return a pair, (advantages, returns (B, T))")
    if (subject.part.hook == "rlm_filters") != (first.dtype == torch.bool):
        raise _broken(subject, batch, f"the result has dtype {first.dtype}")


@law(*STEP, applies=lambda s: bool(s.part.optional_data), share=0.25)
def optional(subject: Subject, draw: Draw) -> None:
    """Check that it works without its optional data."""
    batch = draw(batches_for(subject))
    _call_part(subject, copied(replace(batch, **dict.fromkeys(subject.part.optional_data))))


@law(*STEP)
def finite(subject: Subject, draw: Draw) -> None:
    """Check that values and gradients are finite, also far from the reference."""
    batch = cast(draw(batches_for(subject, wild=draw(st.booleans()))), torch.float32)
    _check_finite(subject, batch, _evaluate(subject, batch))


@law(*STEP, applies=lambda s: s.part.hook not in ("rlm_filters", "rlm_token_weights"), share=0.25)
def precision(subject: Subject, draw: Draw) -> None:
    """Check that no result is less precise than its data, in float64, float32 and bfloat16."""
    batch = draw(batches_for(subject))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        data = cast(batch, dtype)
        tensors = [x for x in _example_data(subject, data).values() if isinstance(x, torch.Tensor)]
        has_floats = any(x.is_floating_point() for x in tensors)
        for x in _call_part(subject, data):
            if has_floats and torch.promote_types(x.dtype, dtype) != x.dtype:
                raise _broken(subject, batch, f"the result on {dtype} has dtype {x.dtype}")


@law(*STEP, share=0.25)
def device(subject: Subject, draw: Draw) -> None:
    """Check that it creates tensors on the device of its data."""
    batch = draw(batches_for(subject))
    expected = _call_part(subject, copied(batch))
    with torch.device("meta"):  # the default of tensors created without `device=`
        results = _call_part(subject, copied(batch))
    for x, y in zip(expected, results, strict=True):
        if x.device != y.device:
            raise _broken(subject, batch, f"the result is on another device ('{y.device}' stands for it)")


@law(*STEP, share=0.25)
def repeat(subject: Subject, draw: Draw) -> None:
    """Check that equal data give bit-exact equal results."""
    batch = draw(batches_for(subject))
    for x, y in zip(_call_part(subject, copied(batch)), _call_part(subject, copied(batch)), strict=True):
        if not torch.equal(x.nan_to_num(), y.nan_to_num()):
            raise _broken(subject, batch, f"{x.tolist()} the first time, {y.tolist()} the second")


@law(*STEP, share=0.25)
def purity(subject: Subject, draw: Draw) -> None:
    """Check that its data are unchanged."""
    batch = draw(batches_for(subject))
    data = copied(batch)
    _call_part(subject, data)
    if changed := _changed(batch, data):
        raise _broken(subject, batch, f"it changed {changed}")


def _changed(batch: Batch, data: Batch) -> str:
    """Return the first field that differs in two batches, with its values; empty if none does."""
    before, after = [], []
    each(batch, lambda name, x: before.append((name, x)))
    each(data, lambda _, x: after.append(x))
    for (name, x), y in zip(before, after, strict=True):
        if not torch.equal(x.nan_to_num(), y.nan_to_num()):
            return f"{name} from {x.tolist()} to {y.tolist()}"
    return ""


@law(*LOSS, share=0.25)
def gradient(subject: Subject, draw: Draw) -> None:
    """Check that a token weight has no gradient, and any other part of the loss phase has one."""
    batch = draw(batches_for(subject))
    has_gradient, is_weight = bool(_evaluate(subject, batch).gradients), subject.part.hook == "rlm_token_weights"
    if has_gradient == is_weight:
        finding = "the weight has a gradient: detach its inputs" if is_weight else "none of its inputs gets a gradient"
        raise _broken(subject, batch, finding)


@law(*STEP, applies=lambda s: isinstance(s.part.target, type))
def state(subject: Subject, draw: Draw) -> None:
    """Check that its state survives a checkpoint (state_dict, torch.save, load_state_dict), or it has none."""
    first, second = draw(batches_for(subject)), draw(batches_for(subject))
    old, new = subject.fresh(), subject.fresh()
    old(copied(first))
    _update(subject, old, first)
    if isinstance(old.target, Stateful):
        load_checkpoint(new, old)
    for x, y in zip(_as_tuple(old(copied(second))), _as_tuple(new(copied(second))), strict=True):
        _check_equal(subject, second, x, y, "the result after a checkpoint")


@law(*STEP, applies=lambda s: bool(s.part.update_required_data or s.part.update_optional_data), share=0.25)
def update(subject: Subject, draw: Draw) -> None:
    """Check that `update` leaves its data unchanged, is reproducible, and keeps results finite."""
    batch, second = draw(batches_for(subject)), draw(batches_for(subject))
    old, new = subject.fresh(), subject.fresh()
    data = copied(batch)
    _update(subject, old, data)
    _update(subject, new, copied(batch))
    if _changed(batch, data):
        raise _broken(subject, batch, "its `update` changed the data")
    for x, y in zip(_as_tuple(old(copied(second))), _as_tuple(new(copied(second))), strict=True):
        _check_equal(subject, second, x, y, "the result after `update`")
        if not x[second.mask if x.dim() == 2 and x.shape == second.mask.shape else ...].isfinite().all():
            raise _broken(subject, second, f"after `update` it returned {x.tolist()}")


def _update(subject: Subject, part: Bound, batch: Batch) -> None:
    try:
        part.update(batch)
    except Exception as error:
        raise _broken(subject, batch, f"its `update`: {failure(error)}") from error


def _as_tuple(x: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return x if isinstance(x, tuple) else (x,)


SEEDS = st.integers(0, 99)


@law(*STEP)
def padding(subject: Subject, draw: Draw) -> None:
    """Check that values outside the mask have no effect and no gradient."""
    batch, seed = draw(batches_for(subject)), draw(SEEDS)
    before, after = _evaluate(subject, batch), _evaluate(subject, with_other_padding(batch, seed))
    _check_same(subject, batch, before, after, what="under other padding")
    for name, gradient in after.gradients.items():
        if gradient.shape == batch.mask.shape and gradient[~batch.mask].any():
            raise _broken(subject, batch, f"padding has a gradient in {name}: {gradient.tolist()}")


@law(*STEP)
def width(subject: Subject, draw: Draw) -> None:
    """Check that more columns of padding change nothing."""
    batch, columns = draw(batches_for(subject)), draw(st.integers(1, 3))
    tokens = batch.mask.shape[1]
    after = _evaluate(subject, widened(batch, columns))

    def narrow(x: torch.Tensor) -> torch.Tensor:
        return x[:, :tokens] if x.dim() == 2 and x.shape[1] == tokens + columns else x

    narrowed = Evaluation(tuple(map(narrow, after.values)), {name: narrow(g) for name, g in after.gradients.items()})
    _check_same(subject, batch, _evaluate(subject, batch), narrowed, what="under more padding")


@law(*STEP)
def order(subject: Subject, draw: Draw) -> None:
    """Check that the order of the completions does not matter."""
    batch = draw(batches_for(subject))
    permutation = torch.tensor(draw(st.permutations(range(len(batch.group)))))
    after = _evaluate(subject, select_in_order(batch, permutation))
    _check_same(subject, batch, _select(_evaluate(subject, batch), permutation), after, what="in another order")


def _select(evaluation: Evaluation, indices: torch.Tensor) -> Evaluation:
    """Return the values and gradients of some completions; scalars stay."""
    values = tuple(x[indices] if x.dim() else x for x in evaluation.values)
    return Evaluation(values, {name: g[indices] for name, g in evaluation.gradients.items()})


@law(*SCORING)
def isolation(subject: Subject, draw: Draw) -> None:
    """Check that other groups change nothing: a group alone has the same result."""
    batch = draw(batches_for(subject))
    full = _evaluate(subject, batch)
    for label in batch.group.unique():
        members = (batch.group == label).nonzero().squeeze(1)
        alone = _evaluate(subject, select_in_order(batch, members))
        _check_same(subject, batch, _select(full, members), alone, what=f"of group {label} without the others")


@law(*LOSS)
def split(subject: Subject, draw: Draw) -> None:
    """Check that splitting the optimizer step into other micro-batches changes nothing."""
    batch = draw(batches_for(subject))
    cut = draw(st.integers(1, max(1, len(batch.group) - 1)))
    rows = torch.arange(len(batch.group))
    pieces = [_evaluate(subject, select_in_order(batch, piece)) for piece in (rows[:cut], rows[cut:]) if len(piece)]
    scalar = not pieces[0].values[0].dim()
    values = [p.values[0] for p in pieces]
    value = torch.stack(values).sum() if scalar else torch.cat(values)
    shared = set.intersection(*({*p.gradients} for p in pieces))
    joined = Evaluation((value,), {name: torch.cat([p.gradients[name] for p in pieces]) for name in sorted(shared)})
    _check_same(subject, batch, _evaluate(subject, batch), joined, what=f"when split before completion {cut}")


@law(*STEP, applies=lambda s: s.names("group"))
def labels(subject: Subject, draw: Draw) -> None:
    """Check that the numbers of the groups do not matter."""
    batch = draw(batches_for(subject))
    after = _evaluate(subject, with_other_group_numbers(batch))
    _check_same(subject, batch, _evaluate(subject, batch), after, what="under other group numbers")


@law("rlm_advantages")
def ties(subject: Subject, draw: Draw) -> None:
    """Check that the advantage is exactly 0 when all rewards are equal."""
    batch = cast(draw(batches_for(subject, group_size=9)), torch.float32)
    level = draw(st.sampled_from([0.3, 0.0, 1.0, -0.7, 1234.567]))
    rewards = torch.full_like(batch.rewards, level)
    batch = replace(batch, rewards=rewards, token_rewards=on_last_token(rewards, batch.mask))
    advantages = _evaluate(subject, batch).values[0]
    if advantages.any():
        raise _broken(subject, batch, f"the advantages are {advantages.tolist()}")


@law(*STEP)
def empty(subject: Subject, draw: Draw) -> None:
    """Check that completions without a trained token give finite results; in the loss phase they change nothing."""
    batch = draw(batches_for(subject))
    evaluation = _evaluate(subject, without_tokens(batch))
    _check_finite(subject, without_tokens(batch), evaluation)
    if subject.part.hook not in LOSS:
        return
    _check_equal(subject, batch, torch.tensor(0.0), evaluation.values[0].sum(), "the sum over no tokens")
    originals = torch.arange(len(batch.group))
    after = _select(_evaluate(subject, with_empty_completion(batch)), originals)
    _check_same(subject, batch, _evaluate(subject, batch), after, what="after one more completion without tokens")
