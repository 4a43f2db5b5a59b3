"""When a generation has been used enough: the updates left on it are passed over once the policy has moved too far."""

from __future__ import annotations

from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.functional.kl import kl_estimate
from rlm_plugins.trainer.scoring import Scoring


class Stopping(Scoring):
    """The same, that leaves a generation alone once the policy is `args.target_kl` away from the one that wrote it.

    Every update is measured before it is taken, over all its rows of all processes: the mean of w − 1 − log w over the
    trained tokens, w = π / π_old, which estimates KL(π_old ‖ π). The first update beyond `target_kl` is not taken, and
    those left on the generation are not computed. They count as steps: what is planned by the step (schedules,
    `max_steps`, evaluation) stays where it was. A critic still takes the update at which the policy is held, whose
    gradient is there, and then waits with it. Nothing of this needs a place in a checkpoint, since those are taken
    only between generations.
    """

    def __init__(self, **rest: Any) -> None:
        self._far: list[torch.Tensor] = []
        self._enough = False
        super().__init__(**rest)
        if self._most is not None:
            self._refuse_sharding("`target_kl` cannot be kept", "trainer.target_kl")

    @property
    def _most(self) -> float | None:
        """How far the policy may go from the one that wrote, in nats per token; None: as far as it likes."""
        most: float | None = getattr(self.args, "target_kl", None)
        return most

    def _measure(self, batch: Batch) -> None:
        """Notes how far the policy is from the one that wrote this micro-batch."""
        if self._most is None or not self.model.training:
            return
        with torch.no_grad():
            far = kl_estimate(batch.old_logp, batch.logp, "k3").where(batch.mask, 0.0)
            self._far.append(torch.stack([far.sum(), batch.mask.sum().to(far.dtype)]))

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The same, or nothing where this generation has been used enough."""
        if self._step % (self.args.steps_per_generation * self.num_iterations) == 0:
            self._enough = False
        if self._enough:
            return self._pass_over()
        loss = super().training_step(*args, **kwargs)
        if self._far and self.accelerator.sync_gradients:
            self._look_back()
        return loss

    def _look_back(self) -> None:
        """Drops the gradient of an update that would start too far off."""
        total = self.accelerator.reduce(torch.stack(self._far).sum(0), reduction="sum")
        self._far.clear()
        moved = (total[0] / total[1].clamp(min=1.0)).item()
        self._enough = moved > self._most
        self._ledger["update/kl"].append(moved)
        self._ledger["update/skipped"].append(float(self._enough))
        if self._enough:
            self._hold_policy()

    def _pass_over(self) -> torch.Tensor:
        """A micro-batch that nobody learns from."""
        self._step += 1
        if self.accelerator.sync_gradients:
            self._ledger["update/skipped"].append(1.0)
        return torch.zeros((), device=self.accelerator.device)
