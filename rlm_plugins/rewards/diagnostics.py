"""Diagnostics of a weighted sum of rewards: variance shares, ties and correlation with length."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int


def shares(
    parts: Mapping[str, Float[torch.Tensor, "B"]], total: Float[torch.Tensor, "B"], selected: Bool[torch.Tensor, "B"]
) -> dict[str, float]:
    """Return label → share of a weighted reward in the variance of the sum R: cov(w r, R) / var(R).

    They sum to 1 if every reward scored every completion; a negative one opposes the others. Empty if all
    rewards are equal.

    >>> x, y = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 1.0, 1.0])
    >>> shares({"x": 2 * x, "y": y}, 2 * x + y, torch.ones(4, dtype=torch.bool))
    {'x': 0.800000011920929, 'y': 0.20000000298023224}
    """
    centered = _centered(total[selected])
    variance = (centered * centered).sum()
    if variance <= 0:
        return {}
    return {label: (_centered(x.nan_to_num()[selected]) @ centered / variance).item() for label, x in parts.items()}


def correlation(
    x: Float[torch.Tensor, "B"], y: Float[torch.Tensor, "B"], selected: Bool[torch.Tensor, "B"]
) -> float | None:
    """Return Pearson's correlation over the selected completions; None where one variable is constant.

    >>> selected = torch.tensor([True, True, False])
    >>> round(correlation(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([5.0, 7.0, 0.0]), selected), 6)
    1.0
    """
    if selected.sum() < 2:
        return None
    a, b = _centered(x[selected].double()), _centered(y[selected].double())
    size = (a @ a).sqrt() * (b @ b).sqrt()
    return (a @ b / size).item() if size > 1e-12 else None


def ties(rewards: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]) -> float | None:
    """Return the share of pairs within a group that have equal rewards; None without a pair.

    >>> ties(torch.tensor([1.0, 1.0, 0.0, 2.0]), torch.tensor([0, 0, 0, 1]))
    0.3333333432674408
    """
    pairs = (group.unsqueeze(0) == group.unsqueeze(1)).triu(1)
    pairs &= ~(rewards.isnan().unsqueeze(0) | rewards.isnan().unsqueeze(1))
    equal = rewards.unsqueeze(0) == rewards.unsqueeze(1)
    return (equal & pairs).sum().div(pairs.sum()).item() if pairs.any() else None


def equal_groups(rewards: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]) -> float:
    """Return the share of completions whose group has equal rewards.

    Rewards are compared, not their std: eight times 0.2 have a std of 1.6e-8 in float32.

    >>> equal_groups(torch.tensor([0.2, 0.2, 0.2, 0.0, 1.0]), torch.tensor([0, 0, 0, 1, 1]))
    0.6000000238418579
    """
    in_same_group = group.unsqueeze(0) == group.unsqueeze(1)
    different = in_same_group & (rewards.unsqueeze(0) != rewards.unsqueeze(1)) & ~rewards.isnan().unsqueeze(0)
    differs = (different & ~rewards.isnan().unsqueeze(1)).any(1)
    in_different_group = (in_same_group & differs.unsqueeze(0)).any(1)
    return (~in_different_group).float().mean().item()


def _centered(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean()
