"""Calls of parts: selects the data they request, validates what they return, and limits terms of the loss.

A policy loss, token weight or penalty is limited by the keys ``source`` (completions of one rollout source) and
``min_reward`` (completions with this reward or more). A policy loss or penalty with the key ``aggregator`` is
normalized by it instead of the algorithm's, with the counts of its own completions: of one optimizer step, over
micro-batches and ranks, like all counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int

from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import PartError, RlmError, is_out_of_memory
from rlm_plugins.registry.part import Bound


def without_padding(batch: Batch) -> Batch:
    """Return the batch with 0 in every per-token field where the mask is False.

    A part masks padding out of its result. But an inf or NaN cannot be masked out of a gradient (0 · ∞ = NaN),
    so parts never receive one.
    """

    def clean(x: Any) -> Any:
        per_token = isinstance(x, torch.Tensor) and x.is_floating_point() and x.shape == batch.mask.shape
        return x.where(batch.mask, 0.0) if per_token else x

    return replace(batch, **{f.name: clean(getattr(batch, f.name)) for f in fields(batch)})


def select(batch: Batch, keep: Bool[torch.Tensor, "B"] | Int[torch.Tensor, "B"] | slice) -> Batch:
    """Index every field that has a batch dimension by `keep`: a mask (B,), indices, or a slice."""
    indices = torch.arange(len(batch.group))[keep.cpu() if isinstance(keep, torch.Tensor) else keep].tolist()

    def index_field(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: index_field(x) for name, x in value.items()}
        if isinstance(value, list):
            return [value[i] for i in indices]
        return value[keep] if isinstance(value, torch.Tensor) and value.dim() else value

    return Batch(**{f.name: index_field(getattr(batch, f.name)) for f in fields(batch)})


def scatter(x: torch.Tensor, where: Bool[torch.Tensor, "B"], fill: torch.Tensor | float | None = 0.0) -> torch.Tensor:
    """Return a tensor (B, …) with `x` where the mask `where` (B,) is True and `fill` elsewhere (None: 0)."""
    out = fill.clone() if isinstance(fill, torch.Tensor) else x.new_full((len(where), *x.shape[1:]), fill or 0)
    out[where] = x.to(out.dtype)
    return out


def on_last_token(rewards: Float[torch.Tensor, "B"], mask: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """Return each reward on the last trained token of its completion, 0 elsewhere: the form that GAE requires."""
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return rewards.unsqueeze(1) * last


def call_part(part: Bound, batch: Batch, *shapes: str, neutral: float | None = None) -> torch.Tensor:
    """Return the result of `part` on `batch`: a tensor of one of `shapes` (``B``, ``B 1``, ``B T``; none: a scalar).

    That of a term of the loss, (B, 1) or (B, T), is `neutral` for completions to which the term does not apply.

    Raises:
        PartError: The part failed, requires data that is not available, or returned another shape.
    """
    with attribute_errors(part):
        x = part.target(**part.arguments(batch))
    if neutral is None:
        return check_shape(part, x, batch, *shapes)
    x, rows = check_shape(part, x, batch, "B 1", "B T"), term_mask(batch, part)
    return x if rows is None else x.where(rows.unsqueeze(1), neutral)


def update_part(part: Bound, batch: Batch) -> None:
    """Update the state of `part` from a scored `batch`, if it has a method `update`."""
    with attribute_errors(part):
        part.update(batch)


@contextmanager
def attribute_errors(part: Bound) -> Iterator[None]:
    """Re-raise errors of the block, SystemExit too, as a `PartError` that names `part`; but not out of memory."""
    try:
        yield
    except RlmError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise PartError(f"failed: {type(error).__name__}: {error}", where=location(part)) from error


def check_shape(part: Bound, x: object, batch: Batch, *shapes: str) -> torch.Tensor:
    """Return `x`, or raise PartError if it is not a tensor of one of `shapes`."""
    B, T = batch.mask.shape
    sizes = {"B": (B,), "B 1": (B, 1), "B T": (B, T)}
    allowed = {sizes[shape] for shape in shapes} or {()}
    if isinstance(x, torch.Tensor) and tuple(x.shape) in allowed:
        return x
    actual = f"a tensor of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__
    expected = "a tensor of shape " + " or ".join(map(str, sorted(allowed)))
    raise PartError(f"returned {actual}", where=location(part), allowed=expected)


def check_finite(part: Bound, x: torch.Tensor) -> torch.Tensor:
    """Return `x`, or raise PartError if a number is not finite; synchronizes the device."""
    if not x.isfinite().all():
        row = int((~x.isfinite()).nonzero()[0, 0])
        problem = f"returned a number that is not finite for completion {row}: {x[row].tolist()}"
        raise PartError(problem, where=location(part))
    return x


def location(part: Bound) -> str:
    """Return name, hook and file of a part, for errors."""
    return part.part.location


Counts = dict[str, torch.Tensor]
"""Field of the batch (``num_tokens``, …) → the count of a term's own completions."""
_PREFIX = "term_counts"


def term_mask(batch: Batch, term: Bound) -> Bool[torch.Tensor, "B"] | None:
    """Return (B,) True for the completions to which a term applies; None: all."""
    source, min_reward = term.options.get("source"), term.options.get("min_reward")
    from_source = None if source is None else batch.sources[source]
    if min_reward is None:
        return from_source
    is_rewarded = batch.rewards >= min_reward
    return is_rewarded if from_source is None else from_source & is_rewarded


def aggregate_term(batch: Batch, term: Bound, loss: torch.Tensor) -> Float[torch.Tensor, ""]:
    """Return the loss of a term, (B, T) or (B, 1), normalized by its own aggregator over its own completions.

    A batch without `term_counts` counts as a whole optimizer step.
    """
    rows = term_mask(batch, term)
    term_batch = replace(batch, loss=loss.expand(batch.mask.shape).where(batch.mask, 0.0))
    if rows is not None:
        counts = _counts(batch, rows) if batch.term_counts is None else batch.term_counts[_key(term)]
        term_batch = replace(term_batch, mask=batch.mask & rows.unsqueeze(1), **counts)
    return call_part(term.options["aggregator"], term_batch)


def term_counts(batch: Batch, terms: Iterable[Bound]) -> dict[str, Counts]:
    """Return the counts of every limited term with an aggregator, over all completions of a step and all ranks."""
    counts = {}
    for term in terms:
        rows = term_mask(batch, term)
        if rows is not None and "aggregator" in term.options:
            counts[_key(term)] = _counts(batch, rows)
    return counts


def flatten_counts(counts: Mapping[str, Counts]) -> dict[str, torch.Tensor]:
    """Return :func:`term_counts` with one entry per number, as a micro-batch carries them."""
    flat: dict[str, torch.Tensor] = {}
    for key, counts_of_term in counts.items():
        flat |= {f"{_PREFIX}|{key}|{name}": count for name, count in counts_of_term.items()}
    return flat


def unflatten_counts(inputs: Mapping[str, Any], share: float) -> dict[str, Counts]:
    """Return `term_counts` from the entries of :func:`flatten_counts` in a micro-batch, times the share of a step."""
    counts: dict[str, Counts] = {}
    for entry, count in inputs.items():
        prefix, _, rest = entry.partition("|")
        if prefix == _PREFIX:
            key, _, name = rest.rpartition("|")
            counts.setdefault(key, {})[name] = count * share
    return counts


def _counts(batch: Batch, rows: Bool[torch.Tensor, "B"]) -> Counts:
    """Return the counts over the completions where `rows` (B,) is True, at least 1 each: they are denominators."""
    mask = batch.mask & rows.unsqueeze(1)
    counts = {"num_tokens": mask.sum(), "num_sequences": mask.any(1).sum(), "num_sequences_all": rows.sum()}
    return {name: count.clamp(min=1).to(torch.float32) for name, count in counts.items()}


def _key(term: Bound) -> str:
    return f"{term.options.get('source')}|{term.options.get('min_reward')}"
