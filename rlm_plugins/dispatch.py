"""How the machine asks a part: what it hands over, and which answers it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int

from rlm_plugins.batch import Batch
from rlm_plugins.errors import PartError, RlmError
from rlm_plugins.registry.part import Bound


def without_padding(batch: Batch) -> Batch:
    """The batch with 0 in every per-token field where the mask is False.

    A part keeps padding out of its result by the mask, but no formula can keep an inf or NaN out of its gradient
    (0 · ∞ = NaN); so no part ever sees one.
    """

    def clean(x: Any) -> Any:
        per_token = isinstance(x, torch.Tensor) and x.is_floating_point() and x.shape == batch.mask.shape
        return x.where(batch.mask, 0.0) if per_token else x

    return replace(batch, **{f.name: clean(getattr(batch, f.name)) for f in fields(batch)})


def select(batch: Batch, keep: Bool[torch.Tensor, "B"] | Int[torch.Tensor, "B"] | slice) -> Batch:
    """The rows to keep (a mask, their numbers, or from where to where), of every field that has rows."""

    places = torch.arange(len(batch.group))[keep.cpu() if isinstance(keep, torch.Tensor) else keep].tolist()

    def pick(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: pick(x) for name, x in value.items()}
        if isinstance(value, list):
            return [value[i] for i in places]
        return value[keep] if isinstance(value, torch.Tensor) and value.dim() else value

    return Batch(**{f.name: pick(getattr(batch, f.name)) for f in fields(batch)})


def scatter(x: torch.Tensor, places: Bool[torch.Tensor, "B"], rest: torch.Tensor | float | None = 0.0) -> torch.Tensor:
    """The rows of `x` at `places` of a longer tensor that holds `rest` elsewhere (None: 0)."""
    whole = rest.clone() if isinstance(rest, torch.Tensor) else x.new_full((len(places), *x.shape[1:]), rest or 0)
    whole[places] = x.to(whole.dtype)
    return whole


def on_last_token(rewards: Float[torch.Tensor, "B"], mask: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """The reward of a row where GAE and its like expect it: on the last trained token, 0 elsewhere."""
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return rewards.unsqueeze(1) * last


def call_part(part: Bound, batch: Batch, *shapes: str) -> torch.Tensor:
    """What `part` says about `batch`: a tensor of one of `shapes` (``B``, ``B 1``, ``B T``; none: a scalar).

    Raises:
        PartError: It failed, asked for something nobody supplies, or answered in another shape.
    """
    return check_shape(part, call_unchecked(part, batch), batch, *shapes)


def call_unchecked(part: Bound, batch: Batch) -> object:
    """What `part` says about `batch`, unchecked; a failure carries the name of the part."""
    for name in part.part.needs:
        if getattr(batch, name) is None:
            raise PartError(f"asks for '{name}', which nothing supplies", where=location(part))
    with attribute_errors(part):
        return part(batch)


def update_part(part: Bound, batch: Batch) -> None:
    """Lets `part` learn from a scored `batch`, where it has a method `update`."""
    for name in part.part.update_needs:
        if getattr(batch, name) is None:
            raise PartError(f"its `update` asks for '{name}', which nothing supplies", where=location(part))
    with attribute_errors(part):
        part.update(batch)


@contextmanager
def attribute_errors(part: Bound) -> Iterator[None]:
    """Whatever goes wrong inside leaves with the name of `part`; `sys.exit` cannot end a run quietly."""
    try:
        yield
    except (RlmError, torch.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise PartError(f"failed: {type(error).__name__}: {error}", where=location(part)) from error


def check_shape(part: Bound, x: object, batch: Batch, *shapes: str) -> torch.Tensor:
    """`x`, once it is a tensor of one of `shapes`."""
    rows, tokens = batch.mask.shape
    sizes = {"B": (rows,), "B 1": (rows, 1), "B T": (rows, tokens)}
    allowed = {sizes[shape] for shape in shapes} or {()}
    if isinstance(x, torch.Tensor) and tuple(x.shape) in allowed:
        return x
    found = f"a tensor of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__
    wanted = "a tensor of shape " + " or ".join(map(str, sorted(allowed)))
    raise PartError(f"returned {found}", where=location(part), allowed=wanted)


def check_finite(part: Bound, x: torch.Tensor) -> torch.Tensor:
    """`x`, once all its numbers are finite. (Waits for the device: not for the inner loop.)"""
    if not x.isfinite().all():
        row = int((~x.isfinite()).nonzero()[0, 0])
        raise PartError(f"returned a number that is not finite for row {row}: {x[row].tolist()}", where=location(part))
    return x


def location(part: Bound) -> str:
    """Which part, for an error."""
    return f"part '{part.part.full_name}' ({part.part.hook}, {part.part.file})"
