"""Early stop of a generation batch: updates are skipped once the policy is too far from the one that sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rlm_plugins.equation.statistics import kl_estimate
from rlm_plugins.trainer.critic_update import drop_gradients
from rlm_plugins.trainer.observer import StepObserver

if TYPE_CHECKING:
    from rlm_plugins.equation.batch import Batch


class TargetKL(StepObserver):
    """Skips updates on a generation batch once KL(π_old ‖ π) exceeds a limit.

    The KL of every update is estimated before it is taken, over its completions of all processes: the mean of
    w − 1 − log w over the trained tokens, w = π / π_old. The first update beyond `target_kl` is not taken, and those
    left on the generation batch are not computed. They count as steps, so schedules, `max_steps` and evaluation stay
    where they were. A critic still takes the first of them, whose gradient exists, and then waits too. Checkpoints
    need no state of this, since they are taken only between generation batches.

    Args:
        limit: In nats per token.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._sums: list[torch.Tensor] = []
        self._is_exceeded = False

    def attach(self, trainer: Any) -> None:
        """Store the context of the trainer, whose weights are not sharded."""
        self.context = trainer.components.context
        self.context.refuse_sharding("`target_kl` cannot be kept", "trainer.target_kl")

    def begin_micro_batch(self) -> None:
        """Discard the estimates of an interrupted step."""
        if self.context.micro_step % self.context.args.gradient_accumulation_steps == 0:
            self._sums.clear()

    def skips_update(self) -> bool:
        """Return True for the updates left on this generation batch; each batch starts anew."""
        if self.context.micro_step % self.context.micro_steps_per_generation == 0:
            self._is_exceeded = False
        if self._is_exceeded and self.context.accelerator.sync_gradients:
            self.context.log("update/skipped", 1.0)
        return self._is_exceeded

    def portion(self, inputs: Mapping[str, Any], batch: Batch, *, has_old_logp: bool) -> None:
        """Add the KL of some completions to the estimate."""
        if not self.context.is_training:
            return
        with torch.no_grad():
            kl = kl_estimate(batch.old_logp, batch.logp, "k3").where(batch.mask, 0.0)
            self._sums.append(torch.stack([kl.sum(), batch.mask.sum().to(kl.dtype)]))

    def end_micro_batch(self, loss: torch.Tensor) -> None:
        """Drop the gradient of an update that starts beyond the limit."""
        if not self._sums or not self.context.accelerator.sync_gradients:
            return
        total = self.context.accelerator.reduce(torch.stack(self._sums).sum(0), reduction="sum")
        self._sums.clear()
        kl = (total[0] / total[1].clamp(min=1.0)).item()
        self._is_exceeded = kl > self._limit
        self.context.log("update/kl", kl)
        self.context.log("update/skipped", float(self._is_exceeded))
        if self._is_exceeded:
            drop_gradients(self.context.model)
