"""Looking at what a part of the step answers: values and gradients, where somebody trains on them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.testing.batch_transforms import copied
from rlm_plugins.testing.law import LOSS
from rlm_plugins.testing.part_under_test import LawBroken, Subject, failure

LEAVES = ("logp", "entropy", "log_ratio", "ratio", "values", "loss")
"""Fields that carry a gradient in the learning room."""


@dataclass(frozen=True)
class Look:
    """What a part answered, and the gradient of its sum.

    Args:
        values: The answers on the mask: (B, T) with zeros outside, (B,), or a scalar.
        gradients: Field → (B, T) or (B, 1), for the fields the part has a gradient in.
    """

    values: tuple[torch.Tensor, ...]
    gradients: dict[str, torch.Tensor]


def look(subject: Subject, batch: Batch) -> Look:
    """Asks a new instance of the part about a copy of `batch`.

    Raises:
        LawBroken: The part raised something, or answered with something that is no tensor.
    """
    batch = copied(batch)
    leaves = {name: getattr(batch, name).requires_grad_() for name in LEAVES if subject.part.hook in LOSS}
    values = tuple(on_mask(x, batch.mask) for x in answers(subject, batch))
    learning = [x.sum() for x in values if x.requires_grad]
    gradients: dict[str, torch.Tensor] = {}
    if learning and leaves:
        found = torch.autograd.grad(torch.stack(learning).sum(), list(leaves.values()), allow_unused=True)
        gradients = {name: g for name, g in zip(leaves, found, strict=True) if g is not None}
    return Look(tuple(x.detach() for x in values), gradients)


def answers(subject: Subject, batch: Batch) -> tuple[torch.Tensor, ...]:
    """What the part says, as a tuple of tensors."""
    try:
        with warnings.catch_warnings(action="ignore"):
            result = subject.fresh()(batch)
    except Exception as error:
        raise LawBroken(failure(error), shown(subject, batch)) from error
    raw = result if isinstance(result, tuple) else (result,)
    for x in raw:
        if not isinstance(x, torch.Tensor):
            raise LawBroken(f"it returned {type(x).__name__} where a tensor belongs", shown(subject, batch))
    return raw


def on_mask(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The answer where somebody trains on it."""
    return x.expand(mask.shape).where(mask, 0) if x.dim() == 2 else x


def same(subject: Subject, batch: Batch, now: Look, then: Look, *, what: str) -> None:
    """Holds two looks against each other; `what` says what was done in between.

    Raises:
        LawBroken: They differ by more than rounding.
    """
    for x, y in zip(now.values, then.values, strict=True):
        equal(subject, batch, x, y, f"the result {what}")
    for name in now.gradients | then.gradients:
        x, y = (gradients.get(name, torch.tensor(0.0)) for gradients in (now.gradients, then.gradients))
        equal(subject, batch, x, y, f"the gradient of {name} {what}")


def equal(subject: Subject, batch: Batch, x: torch.Tensor, y: torch.Tensor, what: str) -> None:
    """Holds two tensors against each other."""
    if x.dim() and y.dim() and x.shape != y.shape:
        raise LawBroken(f"{what}: shape {tuple(x.shape)} became {tuple(y.shape)}", shown(subject, batch))
    x, y = torch.broadcast_tensors(x.double(), y.double())
    wrong = ~torch.isclose(x, y, rtol=1e-7, atol=1e-9, equal_nan=True)
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        where = f" at {list(place)}" if place else ""
        raise LawBroken(f"{what}: {x[place].item():.6g} became {y[place].item():.6g}{where}", shown(subject, batch))


def sound(subject: Subject, batch: Batch, seen: Look) -> None:
    """Holds that values and gradients are finite."""
    for value in seen.values:
        if not value.isfinite().all():
            raise LawBroken(f"the result is {value.tolist()}", shown(subject, batch))
    for name, gradient in seen.gradients.items():
        if not gradient.isfinite().all():
            raise LawBroken(f"the gradient of {name} is {gradient.tolist()}", shown(subject, batch))


def shown(subject: Subject, batch: Batch) -> dict[str, object]:
    """The data of `batch` that the part named, to be printed."""
    names = dict.fromkeys((*subject.part.needs, *subject.part.welcomes, "mask"))
    return {name: getattr(batch, name) for name in names if name != "log" and getattr(batch, name, None) is not None}


def without(batch: Batch, names: tuple[str, ...]) -> Batch:
    """The batch without some of its data."""
    return replace(batch, **dict.fromkeys(names))  # type: ignore[arg-type]
