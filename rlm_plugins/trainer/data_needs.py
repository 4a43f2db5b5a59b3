"""Data of the batch that the parts of an algorithm need before the first forward pass of the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlm_plugins.equation import Equation
from rlm_plugins.registry.part import Bound


@dataclass(frozen=True)
class DataNeeds:
    """Data needed by the scoring phase, and where old log-probs may come from.

    Args:
        equation: The parts of the algorithm.
        args: Config of the trainer.
        learners: Every part that may be stateful.
    """

    equation: Equation
    args: Any
    learners: Sequence[Bound] = ()

    def for_scoring(self, name: str) -> bool:
        """Return True if a part requests a field of the batch before the loss phase, or in `update`."""
        parts = [*self.equation.shapers, *self.equation.filters, self.equation.advantage]
        return any(name in p.part.required_data for p in parts) or any(
            name in p.part.update_required_data for p in self.learners
        )

    @property
    def old_for_scoring(self) -> bool:
        """True if old log-probs are needed before the first pass of the update."""
        names = ("old_logp", "policy_drift")
        return self.equation.requires("expected_logp") or any(self.for_scoring(name) for name in names)

    @property
    def old_by_trl(self) -> bool:
        """True if TRL computes old log-probs: a generation is more than one optimizer step, or not a part of one."""
        args = self.args
        return bool(args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations))

    @property
    def first_pass_is_old(self) -> bool:
        """True if the first pass of the update gives old log-probs: a generation is one optimizer step, repeated."""
        args = self.args
        repeated = args.steps_per_generation == args.gradient_accumulation_steps and args.num_iterations > 1
        return repeated and not args.use_vllm
