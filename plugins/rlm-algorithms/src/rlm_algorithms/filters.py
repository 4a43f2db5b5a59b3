"""Filters: PRIME's band of accuracy, a part of a group (GFPO, TTRL), the gate of HPT."""

from __future__ import annotations

from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeInt, PositiveInt

from rlm_plugins.equation.knobs import RewardName, SourceName, completions_of, named
from rlm_plugins.equation.statistics import Groups
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import torch


def accuracy_band(
    named_rewards: dict[str, torch.Tensor],
    group: Int[torch.Tensor, "B"],
    *,
    reward: RewardName = "accuracy",
    low: float = 0.2,
    high: float = 0.8,
) -> Bool[torch.Tensor, "B"]:
    """Keep the groups that are neither too easy nor too hard.

    kept = groups with low ≤ mean_g ≤ high, the mean being that of the named `reward`, unweighted and unshaped. PRIME,
    arXiv 2502.01456, with 0.2 and 0.8. Completions without the reward are ignored; a group without any is not kept.

    >>> scores = {"accuracy": torch.tensor([1.0, 0.0, 1.0, 1.0])}
    >>> accuracy_band(scores, torch.tensor([0, 0, 1, 1])).tolist()
    [True, True, False, False]
    """
    groups = Groups(named(named_rewards, reward, where="filters: accuracy_band.reward"), group)
    mean = groups.table.nanmean(1, keepdim=True)
    return groups.flatten((low <= mean) & (mean <= high))


def keep_k(
    rewards: Float[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    *,
    k: PositiveInt = 4,
    by: Literal["length", "reward_per_token"] = "length",
) -> Bool[torch.Tensor, "B"]:
    """Keep the k best completions of each group: the shortest, or those with the most reward per token (GFPO).

    kept = the k of each group with the least n, or the most r / n, n being the trained tokens. GFPO, arXiv
    2508.09726. Of ties the first are kept; a group of k or fewer is kept completely.

    The advantage then compares kept completions only, and the others are in no denominator (TRL 0.26; the paper's
    formula leaves them there with advantage 0). Rewards below 0 per token favor long wrong answers: give wrong ones 0.

    >>> mask = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
    >>> keep_k(torch.ones(3), mask, torch.tensor([0, 0, 0]), k=2).tolist()
    [False, True, True]
    """
    lengths = mask.sum(1).float()
    score = -lengths if by == "length" else rewards / lengths.clamp(min=1)
    groups = Groups(score, group)
    best_first = groups.table.nan_to_num(nan=-torch.inf).argsort(stable=True, dim=1, descending=True)
    return groups.flatten(best_first.argsort(1) < k)


def first_k(group: Int[torch.Tensor, "B"], *, k: PositiveInt) -> Bool[torch.Tensor, "B"]:
    """Keep the first k completions of each group; the others only take part in its rewards.

    TTRL, arXiv 2504.16084, votes with 64 completions and trains on 32: ``num_generations: 64`` and `k` 32. They are
    independent samples, so the first are random ones. The advantage compares the kept ones only.

    >>> first_k(torch.tensor([0, 1, 0, 0]), k=2).tolist()
    [True, True, True, False]
    """
    order = Groups(torch.arange(len(group), dtype=torch.float32, device=group.device), group)
    return order.flatten(order.table.nan_to_num(nan=torch.inf).argsort(1).argsort(1) < k)


def _check_k(config: Any, *, k: int, **_: Any) -> None:
    """Check that the filter drops at least one completion of each group."""
    size = config.num_generations
    if k >= size:
        problem = f"got {k}, but a group has {size} completions (`trainer.num_generations`): none would be filtered out"
        raise RecipeError(problem, where="k", allowed=f"less than {size}")


keep_k.validate = _check_k  # type: ignore[attr-defined]
first_k.validate = _check_k  # type: ignore[attr-defined]


def no_truncated_groups(truncated: Bool[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]) -> Bool[torch.Tensor, "B"]:
    """Keep the groups without truncated completions, since the reward of a truncated one is unreliable.

    PRIME's filter beside `accuracy_band` (arXiv 2502.01456). To drop only the truncated completions, use the token
    weight `mask_truncated`.

    >>> no_truncated_groups(torch.tensor([False, True, False]), torch.tensor([0, 0, 1])).tolist()
    [False, False, True]
    """
    groups = Groups(truncated.float(), group)
    return groups.flatten(groups.table.nansum(1, keepdim=True) == 0)


def gate(
    rewards: Float[torch.Tensor, "B"],
    named_rewards: dict[str, torch.Tensor],
    group: Int[torch.Tensor, "B"],
    sources: dict[str, torch.Tensor],
    *,
    source: SourceName = "demonstrations",
    at_most: NonNegativeInt = 0,
    reward: RewardName | None = None,
    threshold: float = 1.0,
) -> Bool[torch.Tensor, "B"]:
    """Keep the demonstration of a group if its samples fail, and the samples otherwise (HPT).

    kept = completions of `source` if at most `at_most` of the others are right, else the others. HPT, arXiv 2509.04419,
    whose gate is `at_most`, 0 for its 7B model. A completion is right if its reward (the one called `reward`,
    unweighted and unshaped; by default their shaped sum) reaches `threshold`. A group without a completion of `source`
    is kept.

    >>> group, sources = torch.tensor([0, 0, 1, 1]), {"demonstrations": torch.tensor([False, True, False, True])}
    >>> gate(torch.tensor([0.0, 1.0, 1.0, 1.0]), {}, group, sources).tolist()
    [False, True, True, False]
    """
    if reward is not None:
        rewards = named(named_rewards, reward, where="filters: gate.reward")
    demonstrated = completions_of(sources, source, where="filters: gate.source")
    right = Groups(((rewards >= threshold) & ~demonstrated).to(rewards.dtype), group)
    present = Groups(demonstrated.to(rewards.dtype), group)
    failed = (right.table.nansum(1, keepdim=True) <= at_most) & (present.table.nansum(1, keepdim=True) > 0)
    return right.flatten(failed) == demonstrated
