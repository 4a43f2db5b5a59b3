"""The equation of an algorithm: one part, or a list of them, per symbol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rlm_plugins.registry.part import Bound


@dataclass(frozen=True)
class Equation:
    """The parts of the equation's symbols, bound to their knobs."""

    advantage: Bound
    policy_loss: Bound
    aggregator: Bound
    importance: Bound | None = None
    shapers: Sequence[Bound] = ()
    filters: Sequence[Bound] = ()
    token_weights: Sequence[Bound] = ()
    penalties: Sequence[Bound] = ()

    @classmethod
    def from_slots(cls, slots: Mapping[str, Any]) -> Equation:
        """Build the equation from the slots of an algorithm; slots of prompts and rollouts are ignored."""
        return cls(**{f.name: slots[f.name] for f in fields(cls) if slots.get(f.name) is not None})

    def parts(self) -> list[Bound]:
        """Return all parts, in batch order."""
        order = ("shapers", "filters", "advantage", "importance", "policy_loss", "token_weights", "penalties")
        slots = [getattr(self, name) for name in (*order, "aggregator")]
        slots += [[p.options["aggregator"] for p in self.terms() if "aggregator" in p.options]]
        return [p for slot in slots for p in (slot if isinstance(slot, Sequence) else [slot]) if p is not None]

    def terms(self) -> list[Bound]:
        """Return the summands of the loss: the policy loss and the penalties."""
        return [self.policy_loss, *self.penalties]

    def requires(self, name: str) -> bool:
        """Return True if any part requires `name`."""
        return any(part.part.requires(name) for part in self.parts())

    @property
    def is_per_sequence(self) -> bool:
        """True if the loss of a sequence uses no statistic over the optimizer step."""
        return not (self.requires("step_batch") or self.requires("step_batch_rows"))

    @property
    def refill(self) -> int | None:
        """Maximum number of sampling rounds per batch, the smallest of all filters; None: no dynamic sampling."""
        return min((part.options["refill"] for part in self.filters if part.options.get("refill")), default=None)
