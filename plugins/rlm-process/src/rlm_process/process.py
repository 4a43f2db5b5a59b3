"""Â of steps that were paid for one by one: GRPO with process supervision (hook ``rlm_advantages``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat

from rlm_plugins.ingredients.arithmetic import discounted
from rlm_plugins.lazy import torch
from rlm_process.knobs import Steps
from rlm_process.segments import Segments
from rlm_process.steps import cutter, numbers


def step_relative(
    dense_rewards: Float[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    completion_ids: Sequence[Sequence[int]],
    tokenizer: Any,
    *,
    steps: Steps = "lines",
    eps: NonNegativeFloat = 1e-4,
) -> Float[torch.Tensor, "B T"]:
    """What this step and those after it were paid, each seen from all steps of the group.

    Âᵢₜ = Σₖ (rₖ − mean_g) / (std_g + eps) over the steps k of the row that end at token t or later: rₖ is what shapers
    added to the tokens of step k (`dense_rewards`), mean and std are those of all steps of all rows of the group.
    GRPO's process supervision, arXiv 2402.03300 §4.1.3.

    The outcome is not in it: pay it in the last step, as `step_labels` does. Std with n − 1. All steps of a group paid
    the same, or one step alone: exactly 0. A row of many good steps gains with each of them: see the pitfalls of
    `step_labels`.

    >>> from rlm_process.knobs import Every
    >>> paid, mask = torch.tensor([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]), torch.ones(2, 4).bool()
    >>> ids, two = [[5, 6, 7, 8], [5, 6]], Every(every=2)
    >>> step_relative(paid, torch.tensor([0, 0]), mask, ids, None, steps=two, eps=0.0).mul(3**0.5).round().tolist()
    [[2.0, 2.0, 1.0, 1.0], [-2.0, -2.0, 0.0, 0.0]]
    """
    cut = cutter(steps, tokenizer, where="advantage: step_relative.steps")
    pieces = Segments(numbers(completion_ids, cut, mask).where(mask, -1))
    everybody = group.unsqueeze(1).expand(pieces.live.shape)
    relative = pieces.compared(pieces.sums(dense_rewards), everybody, scale=True, eps=eps)
    return pieces.spread(discounted(relative, 1.0, pieces.live))
