"""Transforms of a batch under which the result of a part must be invariant."""

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
    """Return the batch with `change(name, tensor)` in place of every tensor, also in its `step_batch`."""

    def apply(name: str, value: Any) -> Any:
        if isinstance(value, Batch):
            return each(value, change)
        if isinstance(value, dict):
            return {key: apply(name, x) for key, x in value.items()}
        return change(name, value) if isinstance(value, torch.Tensor) else value

    return Batch(**{f.name: apply(f.name, getattr(batch, f.name)) for f in fields(batch)})


def copied(batch: Batch) -> Batch:
    """Return a copy in other memory."""
    return each(batch, lambda _, x: x.detach().clone())


def cast(batch: Batch, dtype: torch.dtype) -> Batch:
    """Return the batch with every floating-point field in `dtype`."""
    return each(batch, lambda _, x: x.to(dtype) if x.is_floating_point() else x)


def with_other_padding(batch: Batch, seed: int) -> Batch:
    """Return the batch with other values of the same kind where the mask is False.

    None is inf or NaN, which never reach a part, nor has an exp or log that is.
    """
    generator = torch.Generator().manual_seed(seed)

    def change(name: str, x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point() or x.shape != batch.mask.shape:
            return x
        other = torch.randn(x.shape, generator=generator, dtype=x.dtype) * 5
        kind = -other.abs() if name.endswith("logp") else other.abs() if name in POSITIVE else other
        return x.where(batch.mask, kind)

    changed = each(replace(batch, step_batch=None), change)  # type: ignore[arg-type]
    return (
        changed if batch.step_batch is None else replace(changed, step_batch=with_other_padding(batch.step_batch, seed))
    )


def widened(batch: Batch, columns: int) -> Batch:
    """Return the batch with more columns of padding on the right."""

    def change(name: str, x: torch.Tensor) -> torch.Tensor:
        thin = name in ("advantages", "log_ratio", "ratio", "rollout_weight") and x.shape[1] == 1
        return x if x.dim() != 2 or thin else torch.nn.functional.pad(x, (0, columns))

    return each(batch, change)


def select_in_order(batch: Batch, order: torch.Tensor) -> Batch:
    """Return the completions at `order`; the `step_batch` they belong to stays whole."""
    return replace(select(replace(batch, step_batch=None), order), step_batch=batch.step_batch)  # type: ignore[arg-type]


def with_other_group_numbers(batch: Batch) -> Batch:
    """Return the batch with other numbers for the same groups."""
    return replace(batch, group=1000 - 7 * batch.group)


def with_empty_completion(batch: Batch) -> Batch:
    """Return the batch with one more completion, in the last one's group, without a trained token."""
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
    """Return the batch without trained tokens."""
    step_batch = None if batch.step_batch is None else without_tokens(batch.step_batch)
    mask, token_rewards = torch.zeros_like(batch.mask), torch.zeros_like(batch.token_rewards)
    return replace(batch, mask=mask, token_rewards=token_rewards, step_batch=step_batch)  # type: ignore[arg-type]
