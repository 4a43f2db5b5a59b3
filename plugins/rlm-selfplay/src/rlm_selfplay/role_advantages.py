"""Â of each role by itself: a running baseline (SPIRAL), or statistics of the batch (Absolute Zero)."""

from __future__ import annotations

from typing import Annotated, Any

from jaxtyping import Bool, Float
from pydantic import Field, NonNegativeFloat

from rlm_plugins.equation.knobs import RewardName, named
from rlm_plugins.equation.statistics import Groups, nanstd
from rlm_plugins.lazy import torch

Decay = Annotated[float, Field(ge=0, lt=1)]


class RoleBaseline:
    """Reward minus a running mean of the rewards of its role.

    Âᵢ = rᵢ − b: after each batch b of a role is α b + (1 − α) rᵢ, completion by completion. SPIRAL, arXiv 2506.24119
    eq. 7–8 (role-conditioned advantage estimation), α is `decay` and 0.95 there. In a zero-sum game one baseline for
    both players would be 0, although the first or the second player may win more often.

    The roles are the values of the reward `role` (weight 0). The paper keeps a baseline per game and role: number the
    roles of several games differently. The paper updates b before it subtracts it; here b is that of the previous
    batches, so it does not depend on the completion's own reward. b starts at 0. A completion without a trained token
    does not change b.

    >>> baseline = RoleBaseline(decay=0.5)
    >>> r, roles, mask = torch.tensor([1.0, -1.0]), {"role": torch.tensor([0.0, 1.0])}, torch.ones(2, 1).bool()
    >>> baseline.update(r, roles, mask)
    >>> baseline(r, roles).tolist()
    [0.5, -0.5]
    """

    def __init__(self, *, decay: Decay = 0.95, role: RewardName = "role") -> None:
        self.decay, self.role = decay, role
        self.means: dict[float, float] = {}

    def __call__(
        self, rewards: Float[torch.Tensor, "B"], named_rewards: dict[str, torch.Tensor]
    ) -> Float[torch.Tensor, "B"]:
        baselines = [self.means.get(role, 0.0) for role in self._roles(named_rewards)]
        return rewards - torch.tensor(baselines, dtype=rewards.dtype, device=rewards.device)

    def update(
        self,
        rewards: Float[torch.Tensor, "B"],
        named_rewards: dict[str, torch.Tensor],
        mask: Bool[torch.Tensor, "B T"],
    ) -> None:
        trained = mask.any(1).tolist()
        for role, reward, counts in zip(self._roles(named_rewards), rewards.tolist(), trained, strict=True):
            if counts:
                self.means[role] = self.decay * self.means.get(role, 0.0) + (1 - self.decay) * reward

    def _roles(self, named_rewards: dict[str, torch.Tensor]) -> list[float]:
        return named(named_rewards, self.role, where="advantage: role_baseline.role").tolist()

    def state_dict(self) -> dict[str, Any]:
        return {"means": dict(self.means)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.means = dict(state["means"])


def role_whitened(
    rewards: Float[torch.Tensor, "B"],
    named_rewards: dict[str, torch.Tensor],
    *,
    role: RewardName = "role",
    eps: NonNegativeFloat = 1e-8,
) -> Float[torch.Tensor, "B"]:
    """Reward standardized over the completions of the batch that have the same role.

    Âᵢ = (rᵢ − mean_role r) / (std_role r + eps): std with n − 1. Absolute Zero, arXiv 2505.03335 eq. 8 (Task-Relative
    REINFORCE++): six roles there, proposer and solver of three kinds of tasks. It is between a baseline per prompt
    (GRPO) and one for all (REINFORCE++).

    The roles are the values of the reward `role` (weight 0). A role with equal rewards, or with a single completion,
    has exactly 0.

    >>> roles = {"role": torch.tensor([0.0, 0.0, 3.0, 3.0])}
    >>> role_whitened(torch.tensor([1.0, 3.0, -1.0, -1.0]), roles).tolist()
    [-0.7071067690849304, 0.7071067690849304, 0.0, 0.0]
    """
    roles = named(named_rewards, role, where="advantage: role_whitened.role")
    groups = Groups(rewards, roles)
    table = groups.table
    return groups.flatten_or_zero((table - table.nanmean(1, keepdim=True)) / (nanstd(table, 1) + eps))
