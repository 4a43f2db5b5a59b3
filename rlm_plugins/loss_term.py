"""Terms of the loss that are limited to some completions or have a separate aggregator.

A policy loss, token weight or penalty is limited by the keys ``source`` (completions of one rollout source) and
``min_reward`` (completions with this reward or more). A policy loss or penalty with the key ``aggregator`` is
normalized by it instead of the algorithm's, with the counts of its own completions: of one optimizer step, over
micro-batches and ranks, like all counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import call_part
from rlm_plugins.registry.part import Bound

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


def call_term(batch: Batch, term: Bound, neutral: float) -> torch.Tensor:
    """Return the values of a term, (B, 1) or (B, T), with `neutral` for completions to which it does not apply."""
    x, rows = call_part(term, batch, "B 1", "B T"), term_mask(batch, term)
    return x if rows is None else x.where(rows.unsqueeze(1), neutral)


def aggregate_term(batch: Batch, term: Bound, loss: torch.Tensor) -> Float[torch.Tensor, ""]:
    """Return the per-token loss of a term, normalized by its own aggregator over its own completions.

    Args:
        batch: Completions of one micro-batch. Without `term_counts` it counts as a whole optimizer step.
        term: A policy loss or penalty with the key ``aggregator``.
        loss: (B, T) or (B, 1).
    """
    rows = term_mask(batch, term)
    term_batch = replace(batch, loss=loss.expand(batch.mask.shape).where(batch.mask, 0.0))
    if rows is not None:
        counts = _counts(batch, rows) if batch.term_counts is None else batch.term_counts[_key(term)]
        term_batch = replace(term_batch, mask=batch.mask & rows.unsqueeze(1), **counts)
    return call_part(term.options["aggregator"], term_batch)


def term_counts(batch: Batch, terms: Iterable[Bound]) -> dict[str, Counts]:
    """Return the counts of every limited term with an aggregator, for the field `term_counts` of the batch.

    Args:
        batch: All completions of an optimizer step, or of a generation batch, over all ranks.
        terms: Policy loss and penalties.
    """
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
    """Return `term_counts` from the entries of :func:`flatten_counts` in a micro-batch.

    Args:
        inputs: The micro-batch, TRL's dictionary.
        share: Share of the generation batch that one optimizer step trains on.
    """
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
