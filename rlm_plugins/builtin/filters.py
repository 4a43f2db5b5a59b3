"""Filters of groups and completions (hook ``rlm_filters``)."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int

from rlm_plugins import hookimpl
from rlm_plugins.equation.knobs import RewardName, named
from rlm_plugins.equation.statistics import Groups, Singleton
from rlm_plugins.lazy import torch


def nonzero_std(
    rewards: Float[torch.Tensor, "B"],
    named_rewards: dict[str, torch.Tensor],
    group: Int[torch.Tensor, "B"],
    *,
    reward: RewardName | None = None,
    singleton: Singleton = "zero",
) -> Bool[torch.Tensor, "B"]:
    """Keep the groups with a nonzero std of the reward; the others have no gradient. DAPO, arXiv 2503.14476 §3.2.

    `reward` names the reward that must differ, unweighted and unshaped; by default their shaped sum. With a length
    shaper name the accuracy here, or all-wrong groups of different lengths stay. A group of one has no spread and is
    dropped, or with `singleton` "reward" kept, since its advantage is its reward (verl). Completions without the named
    reward are ignored.

    >>> nonzero_std(torch.tensor([1.0, 0.0, 1.0, 1.0]), {}, torch.tensor([0, 0, 1, 1])).tolist()
    [True, True, False, False]
    """
    if reward is not None:
        rewards = named(named_rewards, reward, where="filters: nonzero_std.reward")
    groups = Groups(rewards, group)
    keep = groups.has_spread()
    if singleton == "reward":
        keep = keep | ((~groups.table.isnan()).sum(1, keepdim=True) == 1)
    return groups.flatten(keep)


@hookimpl
def rlm_filters() -> dict[str, object]:
    return {
        "nonzero_std": nonzero_std,
    }
