"""Which rows teach (hook ``rlm_filters``)."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int

from rlm_plugins import hookimpl
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.ingredients.arithmetic import Groups
from rlm_plugins.lazy import torch


def nonzero_spread(
    rewards: Float[torch.Tensor, "B"],
    named_rewards: dict[str, torch.Tensor],
    group: Int[torch.Tensor, "B"],
    *,
    reward: str | None = None,
) -> Bool[torch.Tensor, "B"]:
    """Keeps the groups whose rewards are not all equal: no spread, no lesson. DAPO, arXiv 2503.14476 §3.2.

    `reward` names the reward that must differ, unweighted and unshaped; by default their shaped sum. With a length
    shaper name the accuracy here, or all-wrong groups of different lengths stay. A group of one has no spread; rows
    that the named reward did not score are not looked at.

    >>> nonzero_spread(torch.tensor([1.0, 0.0, 1.0, 1.0]), {}, torch.tensor([0, 0, 1, 1])).tolist()
    [True, True, False, False]
    """
    if reward is not None and reward not in named_rewards:
        raise RecipeError(
            f"no reward is called '{reward}'",
            where="filters: nonzero_spread.reward",
            allowed=", ".join(named_rewards),
            hint=nearest(reward, named_rewards),
        )
    groups = Groups(rewards if reward is None else named_rewards[reward], group)
    return groups.rows(groups.has_spread())


@hookimpl
def rlm_filters() -> dict[str, object]:
    return {"nonzero_spread": nonzero_spread}
