"""Whether numbers tell right rows from wrong ones."""

from __future__ import annotations

from jaxtyping import Float, Int

from rlm_plugins.lazy import torch


def right_above_wrong(
    x: Float[torch.Tensor, "B"], outcome: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]
) -> float | None:
    """The share of pairs of a group, one row right and one wrong, in which the right one has more; a tie is half.

    It is the area under the ROC curve, within groups. Numbers as close as rounding brings them (1e-5) are tied. None:
    there is no such pair.

    >>> x, outcome = torch.tensor([0.3, 0.1, 0.1, 9.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> right_above_wrong(x, outcome, torch.tensor([0, 0, 0, 1]))
    0.75
    """
    pairs = (group.unsqueeze(1) == group) & (outcome > 0.5).unsqueeze(1) & (outcome <= 0.5)
    if not pairs.any():
        return None
    more = x.unsqueeze(1) - x
    above = more.sign().where(more.abs() > 1e-5, 0.0) / 2 + 0.5
    return above[pairs].mean().item()
