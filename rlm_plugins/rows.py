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
    Penalties carry their ``beta`` beside their knobs.
    """

    about: str
    source: str
    pitfalls: str = ""
    trainer: str = "grpo"
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


def turned(spec: Spec, **knobs: Any) -> Mapping[str, Any]:
    """A part of another row with some of its knobs turned.

    >>> turned("clip", delta=3.0), turned({"name": "clip", "delta": 3.0}, epsilon=0.1)
    ({'name': 'clip', 'delta': 3.0}, {'name': 'clip', 'delta': 3.0, 'epsilon': 0.1})
    """
    return {"name": spec, **knobs} if isinstance(spec, str) else {**(spec or {}), **knobs}


def family(name: str) -> str:
    """The row that a convention is one of: what stands before the ``@``.

    >>> family("grpo@trl"), family("acme/grpo@mine"), family("grpo")
    ('grpo', 'acme/grpo', 'grpo')
    """
    return name.partition("@")[0]


SLOTS: tuple[str, ...] = tuple(f.name for f in fields(Row) if f.name not in ("about", "source", "pitfalls", "trainer"))
"""The recipe keys under ``algorithm:``, in the order a batch meets them."""
