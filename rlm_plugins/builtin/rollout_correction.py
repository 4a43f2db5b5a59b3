"""Token weights for rows that another engine sampled: its probabilities of the same tokens differ from the trainer's.

(Re-exported by `token_weights`.) Both parts switch TRL's own correction off, which would weigh a second time.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_plugins.lazy import torch

Level = Literal["token", "sequence"]


def truncated_importance(
    old_logp: Float[torch.Tensor, "B T"],
    rollout_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    cap: PositiveFloat = 2.0,
    level: Level = "token",
) -> Float[torch.Tensor, "B #T"]:
    """c = min(π_old / π_rollout, cap): what the engine sampled too rarely counts more, up to a bound.

    TIS of FlashRL (Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025); its C
    is `cap`, 2 in verl's recipe. `level` "sequence" takes the product over the row's tokens instead, (B, 1).

    Where both engines agree c is 1. A token whose probability the engine did not report (NaN) has ratio 1.

    >>> old, rollout = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -3.0]])
    >>> truncated_importance(old, rollout, torch.tensor([[True, True]])).tolist()
    [[1.0, 2.0]]
    """
    return _mismatch(old_logp, rollout_logp, mask, level).clamp(max=cap)


def masked_importance(
    old_logp: Float[torch.Tensor, "B T"],
    rollout_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    low: NonNegativeFloat = 0.5,
    high: PositiveFloat = 5.0,
    level: Level = "token",
) -> Float[torch.Tensor, "B #T"]:
    """c = π_old / π_rollout between low and high, 0 outside: where the engines disagree too much, nothing is learned.

    IcePop (Ling team, 2025), with α called `low` and β `high`. `level` "sequence": the product over the row's tokens
    decides about the row, (B, 1). The tokens stay in every denominator. Unreported (NaN): ratio 1.

    >>> old, rollout = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -3.0]])
    >>> masked_importance(old, rollout, torch.tensor([[True, True]])).tolist()
    [[1.0, 0.0]]
    """
    ratio = _mismatch(old_logp, rollout_logp, mask, level)
    return ratio.where((ratio >= low) & (ratio <= high), 0.0)


def _mismatch(
    old_logp: Float[torch.Tensor, "B T"],
    rollout_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    level: Level,
) -> Float[torch.Tensor, "B #T"]:
    gap = (old_logp - rollout_logp).nan_to_num(nan=0.0).where(mask, 0.0)
    gap = gap.sum(1, keepdim=True) if level == "sequence" else gap
    return gap.clamp(-20.0, 20.0).exp()
