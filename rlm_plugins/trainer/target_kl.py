"""Early stop of a generation batch: updates are skipped once the policy is too far from the one that sampled."""

from __future__ import annotations

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.functional.kl import kl_estimate
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.critic_update import drop_gradients


class TargetKL:
    """Skips updates on a generation batch once KL(π_old ‖ π) exceeds `args.target_kl`.

    The KL of every update is estimated before it is taken, over its completions of all processes: the mean of
    w − 1 − log w over the trained tokens, w = π / π_old. The first update beyond `target_kl` is not taken, and those
    left on the generation batch are not computed. They count as steps, so schedules, `max_steps` and evaluation stay
    where they were. A critic still takes the first of them, whose gradient exists, and then waits too. Checkpoints
    need no state of this, since they are taken only between generation batches.
    """

    def __init__(self, context: TrainerContext) -> None:
        self.context, self._limit = context, getattr(context.args, "target_kl", None)
        self._sums: list[torch.Tensor] = []
        self._is_exceeded = False
        if self._limit is not None:
            context.refuse_sharding("`target_kl` cannot be kept", "trainer.target_kl")

    def reset(self) -> None:
        """Discard the estimates of an interrupted step."""
        self._sums.clear()

    def is_reached(self) -> bool:
        """Return True if the updates left on this generation batch are skipped; each batch starts anew."""
        if self.context.micro_step % self.context.micro_steps_per_generation == 0:
            self._is_exceeded = False
        return self._is_exceeded

    def measure(self, batch: Batch) -> None:
        """Add the KL of a micro-batch to the estimate."""
        if self._limit is None or not self.context.is_training:
            return
        with torch.no_grad():
            kl = kl_estimate(batch.old_logp, batch.logp, "k3").where(batch.mask, 0.0)
            self._sums.append(torch.stack([kl.sum(), batch.mask.sum().to(kl.dtype)]))

    def end_step(self) -> None:
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

    def log_skipped(self) -> None:
        """Log an optimizer step that is not computed."""
        if self.context.accelerator.sync_gradients:
            self.context.log("update/skipped", 1.0)
