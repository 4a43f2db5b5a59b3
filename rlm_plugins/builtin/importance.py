"""w: how far the policy has moved since the rows were written (hook ``rlm_importance``); parts return log w."""

from __future__ import annotations

from jaxtyping import Bool, Float

from rlm_plugins import hookimpl
from rlm_plugins.lazy import torch


def token(logp: Float[torch.Tensor, "B T"], old_logp: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """One ratio per token: wᵢₜ = π(yₜ) / π_old(yₜ). PPO, arXiv 1707.06347 eq. 6.

    On policy (logp = old_logp) w is 1 and its gradient is that of logp.

    >>> token(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.0, -2.5]])).tolist()
    [[0.0, 0.5]]
    """
    return logp - old_logp


def sequence(
    logp: Float[torch.Tensor, "B T"], old_logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]
) -> Float[torch.Tensor, "B 1"]:
    """One ratio per row, the geometric mean of its token ratios: sᵢ = exp(1/nᵢ Σₜ log wᵢₜ).

    GSPO, arXiv 2507.18071 eq. 7. A row without trained tokens has ratio 1. With advantages that are the same for all
    tokens of a row its gradient is also that of GSPO-token (eq. 13–14), the form that verl computes.

    >>> moved = torch.tensor([[0.2, 0.4, 9.0]])
    >>> sequence(moved, torch.zeros(1, 3), torch.tensor([[True, True, False]])).item()
    0.30000001192092896
    """
    total = (logp - old_logp).where(mask, 0.0).sum(-1)
    return (total / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)


@hookimpl
def rlm_importance() -> dict[str, object]:
    return {"token": token, "sequence": sequence}
