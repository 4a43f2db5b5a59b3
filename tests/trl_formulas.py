"""TRL 1.16's arithmetic, restated formula by formula: parts must equal it to the last bit.

`test_parity.py` runs TRL itself; this shows *which* piece differs when that fails.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def rloo(rewards: Tensor, generations: int) -> Tensor:
    """Return the advantage of TRL's RLOOTrainer."""
    table = rewards.view(-1, generations)
    count = (~torch.isnan(table)).sum(dim=1, keepdim=True)
    baseline = (torch.nansum(table, dim=1, keepdim=True) - table) / (count - 1)
    return torch.nan_to_num(rewards - baseline.view(-1), nan=0.0)


def log_weights(logp: Tensor, old_logp: Tensor, mask: Tensor, level: str) -> Tensor:
    log_ratio = logp - old_logp
    if level == "token":
        return log_ratio
    return ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
