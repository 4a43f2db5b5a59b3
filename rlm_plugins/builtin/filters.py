"""Which rows teach (hook ``rlm_filters``)."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int

from rlm_plugins import hookimpl
from rlm_plugins.builtin.advantages import by_group
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.lazy import torch


def nonzero_spread(
    rewards: Float[torch.Tensor, "B"],
    named_rewards: dict[str, torch.Tensor],
    group: Int[torch.Tensor, "B"],
    *,
    reward: str | None = None,
) -> Bool[torch.Tensor, "B"]:
    """Keeps the groups whose rewards are not all equal: no spread, no lesson. DAPO, arXiv 2503.14476 §3.2.

    `reward` names the reward that must differ, unshaped; by default the shaped sum. With a length shaper name the
    accuracy here, or all-wrong groups of different lengths stay. A group of one has no spread.
    """
    if reward is not None and reward not in named_rewards:
        known = ", ".join(named_rewards)
        raise RlmError(f"no reward is called '{reward}'", allowed=known, hint=nearest(reward, named_rewards))
    scores = rewards if reward is None else named_rewards[reward]
    table = by_group(scores, group)
    return table.rows(table.has_spread().expand(table.cells.shape))


@hookimpl
def rlm_filters() -> dict[str, object]:
    return {"nonzero_spread": nonzero_spread}
