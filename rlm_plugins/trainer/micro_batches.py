"""Micro-batches of an optimizer step, and means of metrics over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.old_logprobs import OldLogProbs
from rlm_plugins.trainer.passes import ForwardPasses


@dataclass
class MicroBatches:
    """The micro-batches that TRL buffers, as the forward passes group them."""

    context: TrainerContext
    passes: ForwardPasses
    old_logprobs: OldLogProbs

    def is_generation_due(self) -> bool:
        """Return True if TRL generates before the next micro-batch."""
        is_first = self.context.micro_step % self.context.micro_steps_per_generation == 0
        return is_first or self.context.buffered_inputs is None

    def is_empty(self) -> bool:
        """Return True if the next micro-batch is empty: its completions were moved to other micro-batches."""
        if self.is_generation_due():
            return False
        inputs = self.context.buffered_inputs[self.context.micro_step % self.context.args.steps_per_generation]
        return self.passes.portions(inputs) == []

    def build(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the micro-batches of a generation batch, regrouped by the forward passes."""
        for observer in self.context.observers:
            observer.micro_batches(micro_batches)
        return self.passes.regroup(micro_batches, self.steps())

    def steps(self) -> range:
        """Return this step; with old log-probs from its first pass, all steps on the same generation batch."""
        count = self.context.args.num_iterations if self.old_logprobs.come_from_update() else 1
        first = self.context.step - self.context.step % count
        return range(first, first + count)


@dataclass
class StepMeans:
    """Means of metrics over all processes, and over all portions of an optimizer step."""

    context: TrainerContext
    passes: ForwardPasses
    _sums: dict[str, torch.Tensor] | None = field(default=None, init=False)

    def reset(self) -> None:
        """Discard the sums of an interrupted step."""
        self._sums = None

    def accumulate(self) -> None:
        """Accumulate sums until :meth:`flush`: portions have different numbers of tokens."""
        self._sums = self._sums or {}

    def add(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        """Log total / count over all processes, at once or with the other portions of the step."""
        local = torch.stack([total, count.to(total.dtype)]).detach()
        sums = self.context.accelerator.reduce(local, reduction="sum")
        if self._sums is None:
            self._log(name, sums)
        else:
            self._sums[name] = self._sums.get(name, 0.0) + sums

    def flush(self) -> None:
        """Log the means of the optimizer step, and clear the sums."""
        for name, sums in (self._sums or {}).items():
            self._log(name, sums)
        self._sums = None

    def _log(self, name: str, sums: torch.Tensor) -> None:
        mean, count = torch.stack([sums[0] / sums[1].clamp(min=1.0), sums[1]]).tolist()  # one device synchronization
        if count > 0 or not self.passes.skips_sequences:  # the mean over no sequence is undefined
            self.context.log(name, mean)
