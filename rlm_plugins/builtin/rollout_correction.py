"""Token weights for completions of another inference engine, whose token probabilities differ from the trainer's.

(Registered by `token_weights`.) Both parts disable TRL's own correction, which would be applied a second time.
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
    """c = min(π_old / π_rollout, cap): a truncated importance ratio of trainer to inference engine (TIS).

    TIS of FlashRL (Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025); its C
    is `cap`, 2 in verl's recipe. `level` "sequence" takes the product over the completion's tokens instead, (B, 1).

    If both agree, c is 1. A token whose probability was not reported (NaN) has ratio 1.

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
    """c = π_old / π_rollout between low and high, 0 outside: no gradient if trainer and engine disagree too much.

    IcePop (Ling team, 2025), with α called `low` and β `high`. `level` "sequence": the product over the completion's
    tokens decides about the completion, (B, 1). The tokens stay in every denominator. Unreported (NaN): ratio 1.

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
    log_ratio = (old_logp - rollout_logp).nan_to_num(nan=0.0).where(mask, 0.0)
    log_ratio = log_ratio.sum(1, keepdim=True) if level == "sequence" else log_ratio
    return log_ratio.clamp(-20.0, 20.0).exp()
