"""Ranking accuracy of scores: whether they separate correct from wrong completions."""

from __future__ import annotations

from jaxtyping import Float, Int

from rlm_plugins.lazy import torch


def ranking_accuracy(
    x: Float[torch.Tensor, "B"], outcome: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]
) -> float | None:
    """Return the share of pairs (correct, wrong) of one group in which the correct one is higher; a tie is half.

    It is the area under the ROC curve, within groups. Numbers within rounding error (1e-5) are tied. None:
    there is no such pair.

    >>> x, outcome = torch.tensor([0.3, 0.1, 0.1, 9.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> ranking_accuracy(x, outcome, torch.tensor([0, 0, 0, 1]))
    0.75
    """
    pairs = (group.unsqueeze(1) == group) & (outcome > 0.5).unsqueeze(1) & (outcome <= 0.5)
    if not pairs.any():
        return None
    difference = x.unsqueeze(1) - x
    wins = difference.sign().where(difference.abs() > 1e-5, 0.0) / 2 + 0.5
    return wins[pairs].mean().item()
