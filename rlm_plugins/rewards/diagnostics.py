"""What a sum of rewards is made of: who decides it, how often it cannot decide, and whether it only counts length."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int


def shares(
    parts: Mapping[str, Float[torch.Tensor, "B"]], total: Float[torch.Tensor, "B"], rows: Bool[torch.Tensor, "B"]
) -> dict[str, float]:
    """Label → share of the differences between rows that one weighted reward makes: cov(w r, R) / var(R).

    They sum to 1 where every reward scored every row; a negative one works against the rest. Empty where all rows
    have one reward.

    >>> x, y = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 1.0, 1.0])
    >>> shares({"x": 2 * x, "y": y}, 2 * x + y, torch.ones(4, dtype=torch.bool))
    {'x': 0.800000011920929, 'y': 0.20000000298023224}
    """
    centred = _centred(total[rows])
    variance = (centred * centred).sum()
    if variance <= 0:
        return {}
    return {label: (_centred(x.nan_to_num()[rows]) @ centred / variance).item() for label, x in parts.items()}


def correlation(
    x: Float[torch.Tensor, "B"], y: Float[torch.Tensor, "B"], rows: Bool[torch.Tensor, "B"]
) -> float | None:
    """Pearson's, over some rows; None where one of them is constant.

    >>> rows = torch.tensor([True, True, False])
    >>> round(correlation(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([5.0, 7.0, 0.0]), rows), 6)
    1.0
    """
    if rows.sum() < 2:
        return None
    a, b = _centred(x[rows].double()), _centred(y[rows].double())
    size = (a @ a).sqrt() * (b @ b).sqrt()
    return (a @ b / size).item() if size > 1e-12 else None


def ties(rewards: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]) -> float | None:
    """Share of the pairs within a group that the reward cannot tell apart; None without a pair.

    >>> ties(torch.tensor([1.0, 1.0, 0.0, 2.0]), torch.tensor([0, 0, 0, 1]))
    0.3333333432674408
    """
    pairs = (group.unsqueeze(0) == group.unsqueeze(1)).triu(1)
    pairs &= ~(rewards.isnan().unsqueeze(0) | rewards.isnan().unsqueeze(1))
    equal = rewards.unsqueeze(0) == rewards.unsqueeze(1)
    return (equal & pairs).sum().div(pairs.sum()).item() if pairs.any() else None


def _centred(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean()
