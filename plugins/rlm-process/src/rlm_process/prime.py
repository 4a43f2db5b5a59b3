"""PRIME: outcome and implicit process reward with a baseline each (advantage and algorithm)."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int

from rlm_plugins.builtin.advantages import leave_one_out
from rlm_plugins.equation.knobs import Share
from rlm_plugins.equation.statistics import Groups, discounted, whiten
from rlm_plugins.lazy import torch


def outcome_and_process(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    dense_rewards: Float[torch.Tensor, "B T"] | None = None,
    *,
    gamma: Share = 1.0,
    stretched: bool = False,
    whitened: bool = False,
) -> Float[torch.Tensor, "B T"]:
    """Combine outcome and process rewards, each relative to the other completions of its group.

    Âᵢₜ = Σₛ γˢ⁻ᵗ (ρᵢₛ − 1/(n−1) Σ_{j≠i} ρ̄ⱼ) + oᵢ − 1/(n−1) Σ_{j≠i} oⱼ, the first sum over s ≥ t. ρ are the dense
    rewards of shapers, ρ̄ⱼ their mean over the tokens of completion j, o the rest of the reward. PRIME, arXiv
    2502.01456.

    The authors' code and verl's recipe differ. `stretched`: ρᵢₛ n/(n−1) − 1/(n−1) Σⱼ ρ̄ⱼ, own mean included; its mean
    over a completion is the same, and deviations from it are n/(n−1) times as large. `whitened`:
    (Â − mean) / √(var + 1e-8) over the mask of the batch, after which only the ratio of ρ to o matters. A completion
    without tokens has no ρ̄; in a group of one the advantage is 0. Without dense rewards it is `leave_one_out`.

    >>> dense, rewards = torch.tensor([[0.5, 0.0], [0.0, 0.25]]), torch.tensor([1.5, 0.25])  # o is 1 and 0
    >>> outcome_and_process(rewards, torch.tensor([0, 0]), torch.ones(2, 2, dtype=torch.bool), dense).tolist()
    [[1.25, 0.875], [-1.25, -1.0]]
    """
    dense = mask.new_zeros(mask.shape, dtype=rewards.dtype) if dense_rewards is None else dense_rewards.where(mask, 0.0)
    groups = Groups(dense.sum(1) / mask.sum(1), group)  # 0/0 = NaN excludes a completion without tokens
    count = (~groups.table.isnan()).sum(1, keepdim=True)
    others = groups.table.nansum(1, keepdim=True) - (0.0 if stretched else groups.table)
    factor = groups.flatten(count / (count - 1)) if stretched else torch.ones_like(rewards)
    relative = dense * factor.unsqueeze(1) - groups.flatten(others / (count - 1)).unsqueeze(1)
    relative = relative.where(mask & groups.flatten(count > 1).unsqueeze(1), 0.0)
    outcome = leave_one_out(rewards - dense.sum(1), group)
    advantages = (discounted(relative, gamma, mask) + outcome.unsqueeze(1)).where(mask, 0.0)
    return whiten(advantages, mask) if whitened else advantages
