"""w: how far the policy has moved since the rows were written (hook ``rlm_importance``); parts return log w."""

from __future__ import annotations

from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat

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
    tokens of a row its gradient is also that of GSPO-token (eq. 13–14), the form that verl computes: `sequence_token`.

    >>> moved = torch.tensor([[0.2, 0.4, 9.0]])
    >>> sequence(moved, torch.zeros(1, 3), torch.tensor([[True, True, False]])).item()
    0.30000001192092896
    """
    return _row_mean(logp - old_logp, mask)


def sequence_sum(
    logp: Float[torch.Tensor, "B T"], old_logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]
) -> Float[torch.Tensor, "B 1"]:
    """One ratio per row, the product of its token ratios: the completion is one action.

    wᵢ = exp(Σₜ log wᵢₜ) = π(y) / π_old(y). TRL's RLOOTrainer clips it. The longer a row, the further w gets from 1:
    once the policy has moved, a clip that suits a token stops long rows altogether. A row without trained tokens has
    ratio 1.

    >>> moved = torch.tensor([[0.25, 0.5, 9.0]])
    >>> sequence_sum(moved, torch.zeros(1, 3), torch.tensor([[True, True, False]])).item()
    0.75
    """
    return (logp - old_logp).where(mask, 0.0).sum(-1, keepdim=True)


def sequence_token(
    logp: Float[torch.Tensor, "B T"], old_logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]
) -> Float[torch.Tensor, "B T"]:
    """The value of the row's ratio at every token, the gradient of that token alone.

    sᵢₜ = sg(sᵢ) · π(yₜ) / sg(π(yₜ)), with sᵢ of `sequence`. GSPO-token, arXiv 2507.18071 eq. 13–14: for advantages
    that differ between the tokens of a row. Where they do not, and a row's tokens weigh alike in the sum, this is
    `sequence`, value and gradient. (verl computes this form always.) A row without trained tokens has ratio 1.

    >>> moved = torch.tensor([[0.25, 0.75]])
    >>> sequence_token(moved, torch.zeros(1, 2), torch.tensor([[True, True]])).tolist()
    [[0.5, 0.5]]
    """
    row = _row_mean(logp - old_logp, mask).detach()
    return row + (logp - logp.detach())


def geometric_clipped(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    advantages: Float[torch.Tensor, "B #T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    epsilon: NonNegativeFloat = 0.4,
    epsilon_high: NonNegativeFloat | None = None,
) -> Float[torch.Tensor, "B 1"]:
    """One ratio per row, the geometric mean of token ratios that are clipped first, each on the side where it gains.

    wᵢ = exp(1/nᵢ Σₜ dₜ), with dₜ = min(log wₜ, ε_high) where Â > 0 and max(log wₜ, −ε) elsewhere. GMPO, arXiv
    2507.20673; to be multiplied by Â without another clip (policy loss `unclipped`).

    `epsilon` and `epsilon_high` (default: `epsilon`) are distances in log space: 0.4 allows e^−0.4 to e^0.4. A clipped
    token has no gradient. A row without trained tokens has ratio 1.

    >>> moved, whole = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.ones(2, 2, dtype=torch.bool)
    >>> geometric_clipped(moved, torch.zeros(2, 2), torch.tensor([[1.0], [-1.0]]), whole, epsilon=0.5).tolist()
    [[0.25], [0.5]]
    """
    moved = logp - old_logp
    high = epsilon if epsilon_high is None else epsilon_high
    return _row_mean(torch.where(advantages > 0, moved.clamp(max=high), moved.clamp(min=-epsilon)), mask)


def group_expectation(
    logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"], expected_logp: Float[torch.Tensor, "B"]
) -> Float[torch.Tensor, "B 1"]:
    """A row's probability against what its group expected, not against its own past: old, odd rows weigh less wildly.

    wᵢ = pᵢ / Ê[q], with pᵢ = exp(1/nᵢ Σₜ log π(yₜ)) and Ê[q] = Σⱼ qⱼ² / Σⱼ qⱼ over the rows of the group, q as p but
    under the old policy. GEPO, arXiv 2508.17850; lengths normalised as in its code. The machine computes log Ê[q], our
    `expected_logp`, over whole groups, however micro-batches cut them (the authors' code takes these for the groups).

    On policy w is not 1. A group of one: `sequence`. A row without trained tokens teaches nothing.

    >>> logp, mask = torch.tensor([[0.5, 0.5]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> group_expectation(logp, mask, torch.tensor([0.25]).log()).exp().tolist()
    [[2.0]]
    """
    return _row_mean(logp, mask) - expected_logp.unsqueeze(1)


def _row_mean(x: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B 1"]:
    return (x.where(mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)


@hookimpl
def rlm_importance() -> dict[str, object]:
    return {
        "token": token,
        "sequence": sequence,
        "sequence_sum": sequence_sum,
        "sequence_token": sequence_token,
        "geometric_clipped": geometric_clipped,
        "group_expectation": group_expectation,
    }
