"""r′: reward shaping (hook ``rlm_shapers``): (B,) replaces the reward, (B, T) is added token by token; and filters."""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat, PositiveInt

from rlm_plugins import hookimpl
from rlm_plugins.equation.knobs import RewardName, named
from rlm_plugins.equation.statistics import Groups, Singleton
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import torch


def overlong(
    rewards: Float[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    max_completion_length: int,
    *,
    max_length: PositiveInt | None = None,
    cache: PositiveInt | None = None,
    factor: float = 1.0,
) -> Float[torch.Tensor, "B"]:
    """Length penalty that grows linearly over the last `cache` tokens before the limit (DAPO).

    r′ = r + factor · clip(((L − cache) − n) / cache, −1, 0). DAPO, arXiv 2503.14476 eq. 13.

    L is `max_length`, by default the maximum completion length; `cache` (default: `L/5`): the paper has 4096 of 20480.
    An empty completion is not penalized.

    >>> mask = torch.ones(1, 9, dtype=torch.bool)
    >>> overlong(torch.tensor([1.0]), mask, 10, cache=2).item()
    0.5
    """
    limit = max_length or max_completion_length
    buffer = cache or max(1, limit // 5)
    excess = (mask.sum(1) - (limit - buffer)).to(rewards.dtype)
    return rewards - factor * (excess / buffer).clamp(0.0, 1.0)


def _check_cache(config: Any, *, max_length: int | None, cache: int | None, **_: Any) -> None:
    """Check that some completions are not penalized."""
    limit = max_length or config.max_completion_length
    if cache is not None and cache >= limit:
        problem = f"got {cache}, but the limit is {limit} tokens: every completion would be penalized"
        raise RecipeError(problem, where="cache", allowed=f"less than {limit}")


overlong.validate = _check_cache  # type: ignore[attr-defined]


def kl_in_reward(
    old_logp: Float[torch.Tensor, "B T"],
    ref_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    beta: NonNegativeFloat = 0.05,
) -> Float[torch.Tensor, "B T"]:
    """rₜ −= β (log π_old − log π_ref): a KL penalty on the reward of each token.

    RLHF practice (arXiv 1909.08593 eq. 2); k1, because a reward needs the unbiased value, not a gradient.

    >>> kl_in_reward(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), torch.tensor([[True]]), beta=0.5).item()
    -1.0
    """
    return -beta * (old_logp - ref_logp).where(mask, 0.0)


def bounded(
    rewards: Float[torch.Tensor, "B"], *, low: float | None = None, high: float | None = None
) -> Float[torch.Tensor, "B"]:
    """Reward clipped to a range: r′ = clip(r, low, high), r the weighted sum.

    PPO practice, and `reward_clip_range` of TRL's RLOOConfig. A bound left out bounds nothing.

    >>> bounded(torch.tensor([-3.0, 0.5, 9.0]), low=-1.0, high=1.0).tolist()
    [-1.0, 0.5, 1.0]
    """
    return rewards.clamp(low, high)


def _check_range(config: Any, *, low: float | None, high: float | None) -> None:
    """Check that the range is not empty."""
    if low is None and high is None:
        raise RecipeError("expected `low`, `high` or both, got neither", where="low")
    if low is not None and high is not None and low >= high:
        raise RecipeError(f"expected low < high, got {low} and {high}", where="low")


bounded.validate = _check_range  # type: ignore[attr-defined]


def by_turn(turn_rewards: Float[torch.Tensor, "B T"], *, scale: float = 1.0) -> Float[torch.Tensor, "B T"]:
    """r′ₜ = rₜ + scale · r(turn), on the last token of each turn, for per-token advantages (`gae`, returns).

    To avoid counting these rewards twice, give `episode_return` a ``weight: 0``. Without turns nothing changes.

    >>> by_turn(torch.tensor([[0.0, 1.0, 0.0, 2.0]]), scale=0.5).tolist()
    [[0.0, 0.5, 0.0, 1.0]]
    """
    return scale * turn_rewards


@hookimpl
def rlm_shapers() -> dict[str, object]:
    return {"overlong": overlong, "bounded": bounded, "kl_in_reward": kl_in_reward, "by_turn": by_turn}


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
    return {"nonzero_std": nonzero_std}
