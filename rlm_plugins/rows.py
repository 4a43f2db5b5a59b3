"""A row of the algorithm table: one choice for every symbol of the equation, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

Spec = str | Mapping[str, Any] | None
"""A part by name, a part with knobs (``{"name": "clip", "epsilon": 0.2}``), or no part."""


@dataclass(frozen=True)
class Row:
    """One published algorithm, or yours.

    Args:
        about: What it is, in a sentence or two.
        source: Where it is defined (arXiv number, equation).
        pitfalls: What goes wrong, and where libraries disagree.
        trainer: The engine that runs it (hook ``rlm_trainers``).

    The other fields are the slots of the equation; each names a part of the hook with the same recipe key.
    What a hook keeps beside the knobs (``beta`` of a penalty, ``rows`` of a source) stands there in a row as well.
    """

    about: str
    source: str
    pitfalls: str = ""
    trainer: str = "grpo"
    sampler: Spec = None
    rollouts: Sequence[Spec] = ()
    shapers: Sequence[Spec] = ()
    filters: Sequence[Spec] = ()
    advantage: Spec = None
    importance: Spec = None
    policy_loss: Spec = None
    token_weights: Sequence[Spec] = ()
    penalties: Sequence[Spec] = ()
    aggregator: Spec = None

    def slots(self) -> dict[str, Spec | Sequence[Spec]]:
        """Recipe key → what this row chooses there.

        >>> Row(about="", source="", advantage="gae").slots()["advantage"]
        'gae'
        """
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name in SLOTS}


SLOTS: tuple[str, ...] = tuple(f.name for f in fields(Row) if f.name not in ("about", "source", "pitfalls", "trainer"))
"""The recipe keys under ``algorithm:``, in the order a batch meets them."""
