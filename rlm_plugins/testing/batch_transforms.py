"""What may be done to a batch without changing what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import select

Change = Callable[[str, torch.Tensor], Any]
POSITIVE = ("ratio", "rollout_weight", "entropy")


def each(batch: Batch, change: Change) -> Batch:
    """The batch with `change(name, tensor)` in place of every tensor, those of its window too."""

    def apply(name: str, value: Any) -> Any:
        if isinstance(value, Batch):
            return each(value, change)
        if isinstance(value, dict):
            return {key: apply(name, x) for key, x in value.items()}
        return change(name, value) if isinstance(value, torch.Tensor) else value

    return Batch(**{f.name: apply(f.name, getattr(batch, f.name)) for f in fields(batch)})


def copied(batch: Batch) -> Batch:
    """The same numbers in other memory."""
    return each(batch, lambda _, x: x.detach().clone())


def cast(batch: Batch, dtype: torch.dtype) -> Batch:
    """Every floating-point field in `dtype`."""
    return each(batch, lambda _, x: x.to(dtype) if x.is_floating_point() else x)


def dirty(batch: Batch, seed: int) -> Batch:
    """Other numbers, of the same kind, wherever the mask is False.

    (No inf or NaN, since the machine lets none reach a part; and nothing whose exp or log would be one.)
    """
    generator = torch.Generator().manual_seed(seed)

    def change(name: str, x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point() or x.shape != batch.mask.shape:
            return x
        other = torch.randn(x.shape, generator=generator, dtype=x.dtype) * 5
        kind = -other.abs() if name.endswith("logp") else other.abs() if name in POSITIVE else other
        return x.where(batch.mask, kind)

    changed = each(replace(batch, step_batch=None), change)  # type: ignore[arg-type]
    return changed if batch.step_batch is None else replace(changed, step_batch=dirty(batch.step_batch, seed))


def wider(batch: Batch, columns: int) -> Batch:
    """More columns of padding on the right."""

    def change(name: str, x: torch.Tensor) -> torch.Tensor:
        thin = name in ("advantages", "log_ratio", "ratio", "rollout_weight") and x.shape[1] == 1
        return x if x.dim() != 2 or thin else torch.nn.functional.pad(x, (0, columns))

    return each(batch, change)


def reordered(batch: Batch, order: torch.Tensor) -> Batch:
    """The rows in another order, or some of them; the optimiser step they belong to stays whole."""
    return replace(select(replace(batch, step_batch=None), order), step_batch=batch.step_batch)  # type: ignore[arg-type]


def relabelled(batch: Batch) -> Batch:
    """Other numbers for the same groups, in another order."""
    return replace(batch, group=1000 - 7 * batch.group)


def with_empty_row(batch: Batch) -> Batch:
    """One more row, in the last row's group, without a trained token; in the optimiser step too."""
    more = each(batch, lambda _, x: torch.cat([x, x[-1:]]) if x.dim() else x)
    for name, value in [(f.name, getattr(more, f.name)) for f in fields(more)]:
        if isinstance(value, list):
            setattr(more, name, [*value, value[-1]])
    more.mask[-1] = False
    if more.step_batch is not None:
        more.step_batch.mask[-1] = False
        more.step_batch_rows[-1] = len(batch.step_batch.mask)
    return more


def without_tokens(batch: Batch) -> Batch:
    """The same rows, none of which has a trained token."""
    window = None if batch.step_batch is None else without_tokens(batch.step_batch)
    nothing, unpaid = torch.zeros_like(batch.mask), torch.zeros_like(batch.token_rewards)
    return replace(batch, mask=nothing, token_rewards=unpaid, step_batch=window)  # type: ignore[arg-type]
