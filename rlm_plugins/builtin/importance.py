"""w: importance ratios of the current to the sampling policy (hook ``rlm_importance``); parts return log w."""

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
    """One ratio per completion, the geometric mean of its token ratios: sᵢ = exp(1/nᵢ Σₜ log wᵢₜ).

    GSPO, arXiv 2507.18071 eq. 7. A completion without trained tokens has ratio 1. With one advantage for all tokens
    of a completion its gradient is also that of GSPO-token (eq. 13–14), the form that verl computes: `sequence_token`.

    >>> log_ratio = torch.tensor([[0.2, 0.4, 9.0]])
    >>> sequence(log_ratio, torch.zeros(1, 3), torch.tensor([[True, True, False]])).item()
    0.30000001192092896
    """
    return _sequence_mean(logp - old_logp, mask)


def sequence_sum(
    logp: Float[torch.Tensor, "B T"], old_logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]
) -> Float[torch.Tensor, "B 1"]:
    """One ratio per completion, the product of its token ratios: the completion is one action.

    wᵢ = exp(Σₜ log wᵢₜ). TRL's RLOOTrainer clips it. The longer a completion, the further w is
    from 1: after an update, a clip range chosen for tokens removes the gradient of long completions altogether. A
    completion without trained tokens has ratio 1.

    >>> log_ratio = torch.tensor([[0.25, 0.5, 9.0]])
    >>> sequence_sum(log_ratio, torch.zeros(1, 3), torch.tensor([[True, True, False]])).item()
    0.75
    """
    return (logp - old_logp).where(mask, 0.0).sum(-1, keepdim=True)


def sequence_token(
    logp: Float[torch.Tensor, "B T"], old_logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]
) -> Float[torch.Tensor, "B T"]:
    """Ratio of the completion as value at every token, with the gradient of that token only (GSPO-token).

    sᵢₜ = sg(sᵢ) · π(yₜ) / sg(π(yₜ)), with sᵢ = exp(1/nᵢ Σₜ log wᵢₜ). GSPO-token, arXiv 2507.18071 eq. 13–14: for
    advantages that differ between the tokens of a completion. If they do not, and its tokens have equal weights, this
    is `sequence`, value and gradient. A completion without trained tokens has ratio 1.

    >>> log_ratio = torch.tensor([[0.25, 0.75]])
    >>> sequence_token(log_ratio, torch.zeros(1, 2), torch.tensor([[True, True]])).tolist()
    [[0.5, 0.5]]
    """
    ratio = _sequence_mean(logp - old_logp, mask).detach()
    return ratio + (logp - logp.detach())


def _sequence_mean(x: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B 1"]:
    return (x.where(mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)


for _ratio in (sequence, sequence_sum):
    _ratio.granularity = "sequence"  # type: ignore


@hookimpl
def rlm_importance() -> dict[str, object]:
    return {"token": token, "sequence": sequence, "sequence_sum": sequence_sum, "sequence_token": sequence_token}
