"""Terms of the loss that apply to some completions only, and their normalization by an aggregator of their own.

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


def term_rows(batch: Batch, term: Bound) -> Bool[torch.Tensor, "B"] | None:
    """Return True for the completions to which a term applies; None if it is not limited."""
    source, least = term.beside.get("source"), term.beside.get("min_reward")
    rows = None if source is None else batch.sources[source]
    if least is None:
        return rows
    good = batch.rewards >= least
    return good if rows is None else rows & good


def limited(batch: Batch, term: Bound, neutral: float) -> torch.Tensor:
    """Return the result of a term on the completions to which it applies, and `neutral` on the others."""
    x, rows = call_part(term, batch, "B 1", "B T"), term_rows(batch, term)
    return x if rows is None else x.where(rows.unsqueeze(1), neutral)


def aggregated(batch: Batch, term: Bound, loss: torch.Tensor) -> Float[torch.Tensor, ""]:
    """Return the per-token loss of a term, normalized by its own aggregator over its own completions.

    Args:
        batch: Completions of one micro-batch. Without `term_counts` it is an optimizer step of its own.
        term: A policy loss or penalty with the key ``aggregator``.
        loss: (B, T) or (B, 1).
    """
    rows = term_rows(batch, term)
    own = replace(batch, loss=loss.expand(batch.mask.shape).where(batch.mask, 0.0))
    if rows is not None:
        counts = _counts(batch, rows) if batch.term_counts is None else batch.term_counts[_key(term)]
        own = replace(own, mask=batch.mask & rows.unsqueeze(1), **counts)
    return call_part(term.beside["aggregator"], own)


def term_counts(batch: Batch, terms: Iterable[Bound]) -> dict[str, Counts]:
    """Return the counts of every limited term with an aggregator, for the field `term_counts` of the batch.

    Args:
        batch: All completions of an optimizer step, or of a generation batch, over all ranks.
        terms: Policy loss and penalties.
    """
    counts = {}
    for term in terms:
        rows = term_rows(batch, term)
        if rows is not None and "aggregator" in term.beside:
            counts[_key(term)] = _counts(batch, rows)
    return counts


def flat(counts: Mapping[str, Counts]) -> dict[str, torch.Tensor]:
    """Return :func:`term_counts` with one entry per number, as a micro-batch carries them."""
    return {f"{_PREFIX}|{key}|{name}": count for key, own in counts.items() for name, count in own.items()}


def unflattened(inputs: Mapping[str, Any], share: float) -> dict[str, Counts]:
    """Return `term_counts` from the entries of :func:`flat` in a micro-batch.

    Args:
        inputs: The micro-batch.
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
    """Return the counts of the completions `rows`; a denominator of none is 1."""
    mask = batch.mask & rows.unsqueeze(1)
    counts = {"num_tokens": mask.sum(), "num_sequences": mask.any(1).sum(), "num_sequences_all": rows.sum()}
    return {name: count.clamp(min=1).to(torch.float32) for name, count in counts.items()}


def _key(term: Bound) -> str:
    return f"{term.beside.get('source')}|{term.beside.get('min_reward')}"
