"""Evaluation of a part of the equation: values and gradients on the mask, and their comparison."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch

from rlm_plugins.batch import Batch
from rlm_testing.batch_transforms import copied
from rlm_testing.law import LOSS
from rlm_testing.part_under_test import LawBroken, Subject, failure

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


def evaluate(subject: Subject, batch: Batch) -> Evaluation:
    """Evaluate a new instance of the part on a copy of `batch`.

    Raises:
        LawBroken: The part raised, or returned anything but tensors.
    """
    batch = copied(batch)
    leaves = {name: getattr(batch, name).requires_grad_() for name in LEAVES if subject.part.hook in LOSS}
    values = tuple(on_mask(x, batch.mask) for x in call_part(subject, batch))
    sums = [x.sum() for x in values if x.requires_grad]
    gradients: dict[str, torch.Tensor] = {}
    if sums and leaves:
        grads = torch.autograd.grad(torch.stack(sums).sum(), list(leaves.values()), allow_unused=True)
        gradients = {name: g for name, g in zip(leaves, grads, strict=True) if g is not None}
    return Evaluation(tuple(x.detach() for x in values), gradients)


def call_part(subject: Subject, batch: Batch) -> tuple[torch.Tensor, ...]:
    """Return the result of a new instance of the part as a tuple of tensors.

    Raises:
        LawBroken: It raised, or returned anything else.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            result = subject.fresh()(batch)
    except Exception as error:
        raise LawBroken(failure(error), example_data(subject, batch)) from error
    raw = result if isinstance(result, tuple) else (result,)
    for x in raw:
        if not isinstance(x, torch.Tensor):
            raise LawBroken(f"expected a tensor, got {type(x).__name__}", example_data(subject, batch))
    return raw


def on_mask(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return `x` with zeros outside the mask if it is per token."""
    return x.expand(mask.shape).where(mask, 0) if x.dim() == 2 else x


def check_same(subject: Subject, batch: Batch, before: Evaluation, after: Evaluation, *, what: str) -> None:
    """Check that two evaluations are equal up to rounding; `what` describes the transform between them.

    Raises:
        LawBroken: They differ.
    """
    for x, y in zip(before.values, after.values, strict=True):
        check_equal(subject, batch, x, y, f"the result {what}")
    for name in before.gradients | after.gradients:
        x, y = (gradients.get(name, torch.tensor(0.0)) for gradients in (before.gradients, after.gradients))
        check_equal(subject, batch, x, y, f"the gradient of {name} {what}")


def check_equal(subject: Subject, batch: Batch, x: torch.Tensor, y: torch.Tensor, what: str) -> None:
    """Check that two tensors are equal up to rounding.

    Raises:
        LawBroken: They differ.
    """
    if x.dim() and y.dim() and x.shape != y.shape:
        raise LawBroken(f"{what}: shape {tuple(x.shape)} became {tuple(y.shape)}", example_data(subject, batch))
    x, y = torch.broadcast_tensors(x.double(), y.double())
    wrong = ~torch.isclose(x, y, rtol=1e-7, atol=1e-9, equal_nan=True)
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        where = f" at {list(place)}" if place else ""
        raise LawBroken(
            f"{what}: {x[place].item():.6g} became {y[place].item():.6g}{where}", example_data(subject, batch)
        )


def check_finite(subject: Subject, batch: Batch, evaluation: Evaluation) -> None:
    """Check that values and gradients are finite.

    Raises:
        LawBroken: They are not.
    """
    for value in evaluation.values:
        if not value.isfinite().all():
            raise LawBroken(f"the result is {value.tolist()}", example_data(subject, batch))
    for name, gradient in evaluation.gradients.items():
        if not gradient.isfinite().all():
            raise LawBroken(f"the gradient of {name} is {gradient.tolist()}", example_data(subject, batch))


def example_data(subject: Subject, batch: Batch) -> dict[str, object]:
    """Return the data of `batch` that the part takes, for printing."""
    names = dict.fromkeys((*subject.part.data, "mask"))
    return {name: getattr(batch, name) for name in names if name != "log" and getattr(batch, name, None) is not None}


def without_data(batch: Batch, names: tuple[str, ...]) -> Batch:
    """Return the batch without some of its data."""
    return replace(batch, **dict.fromkeys(names))  # type: ignore[arg-type]
