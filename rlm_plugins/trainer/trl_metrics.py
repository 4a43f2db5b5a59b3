"""Metrics of loss parts, also under TRL's names for equal quantities, so that dashboards for TRL keep working."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.micro_batches import StepMeans

TRL_NAMES = {
    "penalties/kl": "kl",
    "policy_loss/clipped_low": "clip_ratio/low_mean",
    "policy_loss/clipped_high": "clip_ratio/high_mean",
    "policy_loss/capped": "cispo_clip_ratio",
    "policy_loss/phi": "vespo/phi_seq_mean",
}
"""Our name → TRL's name."""
_REGION = "clip_ratio/region_mean"
_EXTREMES = {"policy_loss/clipped_low": "clip_ratio/low_min", "policy_loss/clipped_high": "clip_ratio/high_max"}


@dataclass
class PartMetrics:
    """Logs what the loss parts of one micro-batch report.

    Args:
        context: Context that the collaborators share.
        means: Means over processes and portions.
        mask: (B, T) True for tokens that enter the means.
    """

    context: TrainerContext
    means: StepMeans
    mask: torch.Tensor
    _clipped: dict[str, torch.Tensor] = field(default_factory=dict, init=False)

    def __call__(self, name: str, x: torch.Tensor) -> None:
        """Log the mean of `x`, (B, T) per token or (B, 1) per sequence."""
        self.means.add(name, torch.where(self.mask.bool(), x, 0.0).sum(), self.mask.sum())
        if name in TRL_NAMES:
            self._log_mean(TRL_NAMES[name], x)
        if name in _EXTREMES:
            self._log_extreme(_EXTREMES[name], x)
            self._clipped[name] = x
            if len(self._clipped) == len(_EXTREMES):
                self._log_mean(_REGION, torch.stack([*self._clipped.values()]).amax(0))
                self._clipped.clear()

    def _log_mean(self, name: str, x: torch.Tensor) -> None:
        """Log the mean over tokens, or over sequences for one value per sequence, as TRL does."""
        if x.shape[1] == 1 != self.mask.shape[1]:
            live = self.mask.any(1, keepdim=True)
            self.means.add(name, (x * live).sum(), live.sum())
        else:
            self.means.add(name, torch.where(self.mask.bool(), x, 0.0).sum(), self.mask.sum())

    def _log_extreme(self, name: str, x: torch.Tensor) -> None:
        """Log the smallest or largest mean of a sequence, over all processes."""
        live, sign = self.mask.any(1), 1.0 if name.endswith("max") else -1.0
        shares = torch.where(self.mask.bool(), x, 0.0).sum(1) / self.mask.sum(1).clamp(min=1)
        largest = (sign * shares).where(live, -torch.inf).amax() if len(live) else torch.tensor(-torch.inf)
        value = sign * self.context.accelerator.gather(largest.to(self.mask.device)).max().item()
        if value not in (torch.inf, -torch.inf):
            self.context.log(name, value)
